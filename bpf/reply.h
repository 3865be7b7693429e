// Replies: the result of a round, the result before it as a recall, a rack's sums, or a welcome.
#pragma once

#include "headers.h"
#include "slot.h"

// A version of a slot of a job: 256 job + 2 slot + version.
typedef __u32 place;

static __always_inline struct version* version_at(place place) {
  const __u32 index = place / 2;
  struct slot* slot = bpf_map_lookup_elem(&slots, &index);
  return slot ? &slot->version[place & 1] : 0;
}

static __always_inline __u32 job_index_of(place place) { return place / (2 * MAX_SLOTS); }

static __always_inline struct job* job_at(place place) {
  const __u32 index = job_index_of(place);
  return bpf_map_lookup_elem(&jobs, &index);
}

struct reply {
  __u64 round;
  place place;  // of the result
  __u16 block;  // of the datagram that it answers
  __u8 kind;
  __u8 to;  // one worker, EVERYONE or PARENT
};
enum { PARENT = 254, EVERYONE = 255 };

static __always_inline __u8 addressee(const struct datagram* in, struct verdict verdict) {
  switch (verdict.fate) {
    case RECALLED:
      return lowest_bit(verdict.missing);
    case COMPLETED:
      return EVERYONE;
    case PASSED:
    case URGED:
      return PARENT;
    default:
      return in->worker;
  }
}

static __always_inline struct reply reply_to(const struct datagram* in, __u32 job,
                                             struct verdict verdict) {
  const bool recalls = verdict.fate == RECALLED;
  // A recall has the number of the round before the one that it asks for.
  const __u64 meant = in->round + (in->kind == RECALL && verdict.fate != COMPLETED);
  const __u64 round = meant - recalls;
  const __u8 to = addressee(in, verdict);
  return (struct reply){.place = (job * MAX_SLOTS + in->slot) * 2 + (round & 1),
                        .round = round,
                        .block = in->block,
                        .kind = recalls        ? RECALL
                                : to == PARENT ? CONTRIBUTION
                                               : RESULT,
                        .to = to};
}

static __always_inline const struct tag_key* reply_key(const struct job* job,
                                                       const struct reply* reply) {
  return reply->to == PARENT ? &job->above.up : &job->keys.down;
}

// A welcome is as long as a result with the block that the hello names. It goes the way of results,
// so a worker that gets it will get results, too.
static __always_inline struct reply welcome(const struct datagram* hello, __u32 job, __u32 flow) {
  return (struct reply){.place = (job * MAX_SLOTS + flow * SLOTS_IN_RUN) * 2,
                        .round = hello->round,
                        .block = hello->block,
                        .kind = WELCOME,
                        .to = hello->worker};
}

static __always_inline __u32 reply_steps(const struct reply* reply, const struct version* version) {
  const __u32 steps =
      reply->kind == WELCOME ? reply->block / STEP : steps_of(version->present, version->block);
  return steps <= MAX_STEPS ? steps : 0;
}

// A worker gets a reply by the flow of the reply's slot.
static __always_inline struct worker* receiver(place place, __u32 number) {
  const __u32 index = job_index_of(place);
  struct parent* parent = parent_of(index);
  const struct job* job = job_at(place);
  if (number == PARENT) return parent ? &parent->at : 0;
  return job ? worker_of(index, number, flow_of(job, place / 2 % MAX_SLOTS)) : 0;
}

// The worker that a reply names: that of the last contribution, or this rack if it goes up.
static __always_inline __u16 sender_of(const struct reply* reply, const struct version* version) {
  if (reply->to != PARENT) return hidden(version->last);
  const struct parent* parent = parent_of(job_index_of(reply->place));
  return parent ? hidden(parent->rack) : 0;
}

// The hello's other fields stay. Bytes by which the reply is longer are zeros.
static __always_inline __u64 write_welcome(const struct frame* frame, __u32 steps,
                                           const struct tag_key* key) {
  struct datagram* out = frame->datagram;
  out->kind = WELCOME;
  out->dtype = INT32;
  return nh_values((const __u32*)(out + 1), frame->end, steps, key);
}

static __always_inline __u64 write_round(const struct frame* frame, const struct reply* reply,
                                         const struct version* version, __u32 steps,
                                         const struct tag_key* key) {
  struct datagram* out = frame->datagram;
  out->kind = reply->kind;
  out->worker = sender_of(reply, version);
  out->present = version->present;
  out->round = reply->round;
  out->block = version->block ?: reply->block;
  out->next = ~version->reach;
  out->exponent = version->exponent;
  return give_values((__u32*)(out + 1), frame->end, version->sums, steps, key);
}

// Writes the reply over the datagram that it answers, whose other fields stay.
static __always_inline void write_reply(const struct frame* frame, const struct reply* reply,
                                        const struct version* version, __u32 steps,
                                        const struct tag_key* key) {
  const __u64 nh = reply->kind == WELCOME ? write_welcome(frame, steps, key)
                                          : write_round(frame, reply, version, steps, key);
  frame->datagram->tag = tag_of(frame->datagram, nh, steps, key);
  write_headers(frame, steps);
}

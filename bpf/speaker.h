// The sender that a datagram names, and whether the name is right: the first check of a datagram.
#pragma once

#include "frame.h"
#include "slot.h"
#include "steps.h"

static __always_inline bool is_of_worker(const struct datagram* in) {
  return in->kind == CONTRIBUTION || in->kind == HELLO;
}

// The entries of the maps that belong to a datagram.
struct speaker {
  __u32 job_index;
  const struct job* job;
  __u32 flow;             // of the worker
  struct worker* who;     // the worker, or the parent
  struct parent* parent;  // if the job has one
};

// The key of datagrams from the worker, or from the parent.
static __always_inline const struct tag_key* key_of(const struct speaker* speaker,
                                                    const struct datagram* in) {
  return is_of_worker(in) ? &speaker->job->keys.up : &speaker->job->above.down;
}

static __always_inline bool is_of_parent(const struct datagram* in) {
  return in->kind == RESULT || in->kind == RECALL || in->kind == WELCOME;
}

static __always_inline bool is_greeting(const struct datagram* in) {
  return in->kind == HELLO || in->kind == WELCOME;
}

static __always_inline void look_up(const struct datagram* in, struct speaker* speaker) {
  const __u32* index = bpf_map_lookup_elem(&places, &in->job);
  speaker->job_index = index ? *index : MAX_JOBS;
  if (!index) return;
  struct parent* parent = parent_of(*index);
  speaker->job = bpf_map_lookup_elem(&jobs, index);
  speaker->parent = parent && parent->at.port ? parent : 0;
  if (!speaker->job) return;
  speaker->flow = flow_of(speaker->job, in->slot);
  speaker->who = is_of_worker(in) ? worker_of(*index, in->worker, speaker->flow)
                 : parent         ? &parent->at
                                  : 0;
}

static __always_inline bool is_known(const struct frame* frame, const struct speaker* speaker) {
  const struct datagram* in = frame->datagram;
  if (!speaker->job || !speaker->who || in->epoch != speaker->job->epoch) return false;
  const __u32 workers = is_of_worker(in)  ? speaker->job->workers
                        : speaker->parent ? speaker->parent->racks
                                          : 0;
  return in->worker < workers && came_from(frame, speaker->who);
}

// A greeting may have any length. Only at the lengths of contributions can its tag be checked.
static __always_inline __u32 steps_in(const struct frame* frame) {
  const struct datagram* in = frame->datagram;
  const __u32 bytes = bpf_ntohs(frame->udp->len) - sizeof(struct udphdr);
  return is_greeting(in) ? (bytes - bytes_of(0)) / (STEP * sizeof(__u32))
                         : steps_of(in->present, in->block);
}

// Whether it is a datagram that these slots add up.
static __always_inline bool is_fit(const struct datagram* in) {
  return in->slot < MAX_SLOTS && in->columns == 1 && in->present <= 1 && in->dtype == INT32 &&
         in->op == SUM && is_block(in->block);
}

static __always_inline bool is_sealed(const struct frame* frame, const struct speaker* speaker,
                                      __u32 steps) {
  const struct datagram* in = frame->datagram;
  const struct tag_key* key = key_of(speaker, in);
  const __u64 nh = nh_values((const __u32*)(in + 1), frame->end, steps, key);
  return in->tag == tag_of(in, nh, steps, key);
}

// Whether the datagram is as long as it says, and from the sender that it names.
static __always_inline bool is_right(const struct frame* frame, const struct speaker* speaker,
                                     __u32 steps) {
  return is_known(frame, speaker) && steps <= MAX_STEPS && has_bytes(frame, bytes_of(steps)) &&
         (is_greeting(frame->datagram) || is_fit(frame->datagram)) &&
         is_sealed(frame, speaker, steps);
}

// Keeps the path of a datagram for answers, so that no address is asked for. Only new datagrams
// count: anybody can send old ones again, from elsewhere.
static __always_inline void learn_path(const struct frame* frame, struct worker* worker) {
  const struct ends now = *frame->ends, old = worker->ends;
  const __u32 differs =
      (now.word[0] ^ old.word[0]) | (now.word[1] ^ old.word[1]) | (now.word[2] ^ old.word[2]);
  if (!differs && is_same(frame->to, &worker->local, frame->is_v6)) return;
  worker->ends = now;
  worker->local = address_at(frame->to, frame->is_v6);
  worker->is_known = 1;
}

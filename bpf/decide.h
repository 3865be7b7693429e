// Decides what becomes of a datagram: it is added up, answered, dropped, or left to the process.
#pragma once

#include "parent.h"
#include "reply.h"
#include "speaker.h"

static __always_inline bool is_new(enum fate fate) {
  return fate == TAKEN || fate == COMPLETED || fate == PASSED;
}

static __always_inline void count(__u32 job, enum fate fate, bool is_of_worker) {
  struct counters* counters = counters_of(job);
  if (!counters) return;
  counters->contributions += is_of_worker && is_new(fate);
  counters->duplicates += is_of_worker && (fate == RESENT || fate == RECALLED || fate == URGED);
  counters->results += fate == COMPLETED;
  counters->resent += fate == RESENT;
  counters->recalls += fate == RECALLED;
  counters->stale += fate == STALE;
  counters->rejected += fate == REJECTED;
  counters->passed += fate == PASSED;
  counters->passed_again += fate == URGED;
}

static __always_inline bool is_answered(enum fate fate) {
  return fate == COMPLETED || fate == RESENT || fate == RECALLED || fate == PASSED || fate == URGED;
}

enum decision { LEFT_ALONE, DROPPED, ANSWERED };

static __always_inline struct verdict judge_all(struct slot* slot, const struct frame* frame,
                                                const struct speaker* speaker, __u32 steps) {
  const struct datagram* in = frame->datagram;
  const __u32 all = everyone(speaker->job);
  if (is_of_worker(in)) return take(slot, in, frame->end, steps, all, speaker->parent);
  if (!speaker->parent) return (struct verdict){REJECTED, 0};
  return hear(slot, in, frame->end, steps, all, speaker->parent->rack);
}

// Numbers of greetings only grow: a greeting or an answer with an old number is a copy.
static __always_inline bool is_fresh(const struct frame* frame, struct worker* who) {
  const __u64 number = frame->datagram->round;
  if (number <= who->greeted) return false;
  who->greeted = number;
  learn_path(frame, who);
  return true;
}

// A welcome shows that greetings of its length reach the root, and that the answers come back.
static __always_inline void hear_welcome(const struct frame* frame, struct speaker* speaker,
                                         __u32 steps) {
  struct parent* parent = speaker->parent;
  if (!parent || frame->datagram->worker != parent->rack) return;
  if (!is_fresh(frame, speaker->who)) return;
  if (bytes_of(steps) > parent->way_up) parent->way_up = bytes_of(steps);
}

// Answers a worker that the process has bound. The process takes a hello that names no block, and
// a hello that the root has to answer first.
static __always_inline enum decision greet(const struct frame* frame, struct speaker* speaker,
                                           struct reply* reply) {
  const struct datagram* in = frame->datagram;
  if (!is_block(in->block)) return LEFT_ALONE;
  if (speaker->parent && bytes_of(in->block / STEP) > speaker->parent->way_up) return LEFT_ALONE;
  if (!is_fresh(frame, speaker->who)) return LEFT_ALONE;
  *reply = welcome(in, speaker->job_index, speaker->flow);
  return ANSWERED;
}

// Sets `reply` if the datagram is answered.
static __always_inline enum decision decide(const struct frame* frame, struct speaker* speaker,
                                            struct reply* reply) {
  const struct datagram* in = frame->datagram;
  look_up(in, speaker);
  if (!is_of_worker(in) && !(speaker->parent && is_of_parent(in))) return LEFT_ALONE;
  if (!speaker->job) {
    if (in->kind == CONTRIBUTION) count(MAX_JOBS, REJECTED, true);
    return LEFT_ALONE;
  }
  const __u32 steps = steps_in(frame);
  const bool right = is_right(frame, speaker, steps);
  if (in->kind == HELLO) return right ? greet(frame, speaker, reply) : LEFT_ALONE;
  if (in->kind == WELCOME) {
    if (right) hear_welcome(frame, speaker, steps);
    return LEFT_ALONE;
  }
  struct slot* slot = right ? slot_of(speaker->job_index, in->slot) : 0;
  if (!slot || steps > MAX_STEPS) {
    count(speaker->job_index, REJECTED, is_of_worker(in));
    return DROPPED;
  }
  const struct verdict verdict = judge_all(slot, frame, speaker, steps);
  count(speaker->job_index, verdict.fate, is_of_worker(in));
  if (is_new(verdict.fate)) learn_path(frame, speaker->who);
  if (!is_answered(verdict.fate)) return DROPPED;
  *reply = reply_to(in, speaker->job_index, verdict);
  return ANSWERED;
}

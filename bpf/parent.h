// The fate of a rack's slot when its parent sends something. Nothing here keeps time: a repeat of
// the rack's workers has the sums sent to the parent again, and a repeat of the parent is answered.
#pragma once

#include "slot.h"

// By the sender of the last contribution, workers know whose datagram was lost: a worker of this
// rack. If the loss was on the way to the parent, it is the worker that had the sums sent again.
static __always_inline void keep_result(struct version* own, const struct datagram* in,
                                        const void* end, __u32 steps, __u16 rack) {
  start_values(own->sums, (const __u32*)(in + 1), end, steps);
  own->present = steps > 0;
  own->reach = ~in->next;
  own->exponent = in->exponent;
  if (in->worker == rack && own->urged) own->last = own->urged - 1;
  own->phase = COMPLETE;
}

// A recall says that the parent misses this rack's contribution to the next round, although another
// rack's came twice.
static __always_inline enum fate judge_recall(const struct version* own, const struct version* next,
                                              const struct datagram* in) {
  if (next->turn == turn_of(in->round + 1)) {
    if (next->phase == ABOVE) return URGED;
    return next->phase == OPEN ? RECALLED : STALE;
  }
  const bool is_last =
      own->turn == turn_of(in->round) && next->turn == turn_of(in->round - 1) && has_ended(own);
  return is_last ? RECALLED : STALE;
}

static __always_inline enum fate judge_parent(const struct version* own, const struct version* next,
                                              const struct datagram* in) {
  const bool is_awaited = own->turn == turn_of(in->round) && own->phase == ABOVE;
  if (is_awaited) return own->block == in->block ? COMPLETED : REJECTED;
  return in->kind == RECALL ? judge_recall(own, next, in) : STALE;
}

// The verdict on a result or a recall; `all` are the rack's workers.
static __always_inline struct verdict hear(struct slot* slot, const struct datagram* in,
                                           const void* end, __u32 steps, __u32 all, __u16 rack) {
  struct version* own = &slot->version[in->round & 1];
  struct version* next = &slot->version[~in->round & 1];
  bpf_spin_lock(&slot->lock);
  const enum fate fate = judge_parent(own, next, in);
  if (fate == COMPLETED) keep_result(own, in, end, steps, rack);
  const __u32 missing = next->missing ?: all;
  bpf_spin_unlock(&slot->lock);
  return (struct verdict){fate, missing};
}

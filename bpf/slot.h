// A slot: two rounds that take turns, each with its sums. Memory of zeros is a slot in which no
// round has begun.
#pragma once

#include <stdbool.h>

#include "job.h"
#include "steps.h"

enum { MAX_SLOTS = 128 };

// Of a version's round. Memory of zeros has none: IDLE. The first contribution opens a round, the
// last completes it; in a rack it hands the sums to the parent, whose result completes the round.
enum phase {
  IDLE,      // -> OPEN
  OPEN,      // -> COMPLETE, or ABOVE in a rack
  ABOVE,     // -> COMPLETE
  COMPLETE,  // -> OPEN, with the next round
};

struct version {
  __u64 turn;     // how many rounds have begun here, modulo 2^63
  __u32 missing;  // bit w: the contribution of worker w has not come
  __u32 reach;    // complement of the least next block, so that 0 is "none"
  __u16 block;
  __u8 exponent;  // the largest of those who announced the least next block
  __u8 present;
  __u16 last;  // the worker whose contribution was the last
  __u16 told;  // copies of the result that have been addressed
  __u8 phase;
  __u8 urged;  // 1 + who had them sent there again, by repeating what is its own
  __u16 zeros[3];
  __u32 sums[MAX_BLOCK];
};

struct slot {
  struct bpf_spin_lock lock;
  __u32 zero;
  struct version version[2];
};

// The slots of job j are at 128 j to 128 j + 127.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, MAX_JOBS* MAX_SLOTS);
  __type(key, __u32);
  __type(value, struct slot);
} slots SEC(".maps");

static __always_inline struct slot* slot_of(__u32 job, __u32 slot) {
  const __u32 index = job * MAX_SLOTS + slot;
  return bpf_map_lookup_elem(&slots, &index);
}

enum fate {
  STALE,      // of a round that is over, or far ahead
  REJECTED,   // not valid
  BEGINS,     // the first one of a round
  TAKEN,      // the round waits for others
  COMPLETED,  // the last one of the round, or the parent's result
  RESENT,     // the round is complete: its result is sent again
  RECALLED,   // the round is not complete: a missing worker is recalled
  PASSED,     // the last one of a rack's round: the sums go to the parent
  URGED,      // the sums are with the parent, and go there again
};

enum { TURNS = -1ull >> 1 };  // a mask

static __always_inline __u64 turn_of(__u64 round) { return ((round >> 1) + 1) & TURNS; }

static __always_inline void begin(struct version* own, const struct datagram* in, __u32 all) {
  own->turn = turn_of(in->round);
  own->phase = OPEN;
  own->missing = all;
  own->reach = 0;
  own->block = in->block;
  own->exponent = 0;
  own->present = 0;
  own->told = 0;
  own->urged = 0;
}

// Keeps the least next block, and the largest exponent that comes with it.
static __always_inline void look_ahead(struct version* own, const struct datagram* in) {
  const __u32 reach = ~in->next;
  if (reach > own->reach) {
    own->reach = reach;
    own->exponent = in->exponent;
  } else if (reach == own->reach && in->exponent > own->exponent) {
    own->exponent = in->exponent;
  }
}

static __always_inline void take_values(struct version* own, const struct datagram* in,
                                        const void* end, __u32 steps) {
  const __u32* values = (const __u32*)(in + 1);
  if (!steps) return;
  if (own->present) {
    add_values(own->sums, values, end, steps);
  } else {
    start_values(own->sums, values, end, steps);
    own->present = 1;
  }
}

// Nothing of a round is to come that has its result, or that has not begun.
static __always_inline bool has_ended(const struct version* version) {
  return version->phase == IDLE || version->phase == COMPLETE;
}

static __always_inline enum fate judge(const struct version* own, const struct version* other,
                                       const struct datagram* in, __u32 bit) {
  if (own->turn == turn_of(in->round)) {
    if (own->phase == IDLE) return STALE;
    if (own->phase == ABOVE) return URGED;
    if (own->phase == COMPLETE) return RESENT;
    if (!(own->missing & bit)) return RECALLED;
    return own->block == in->block ? TAKEN : REJECTED;
  }
  const bool follows =
      ((own->turn + 1) & TURNS) == turn_of(in->round) && other->turn == turn_of(in->round - 1);
  return follows && has_ended(own) && has_ended(other) ? BEGINS : STALE;
}

struct verdict {
  enum fate fate;
  __u32 missing;  // of the round
};

static __always_inline struct verdict take(struct slot* slot, const struct datagram* in,
                                           const void* end, __u32 steps, __u32 all,
                                           bool has_parent) {
  struct version* own = &slot->version[in->round & 1];
  const __u32 bit = 1u << (in->worker % MAX_WORKERS);
  bpf_spin_lock(&slot->lock);
  enum fate fate = judge(own, &slot->version[~in->round & 1], in, bit);
  if (fate == BEGINS) begin(own, in, all);
  if (fate == BEGINS || fate == TAKEN) {
    look_ahead(own, in);
    take_values(own, in, end, steps);
    own->missing &= ~bit;
    own->last = in->worker;
    own->phase = own->missing ? OPEN : has_parent ? ABOVE : COMPLETE;
    fate = own->missing ? TAKEN : has_parent ? PASSED : COMPLETED;
  }
  if (fate == URGED) own->urged = in->worker + 1;
  const __u32 missing = own->missing;
  bpf_spin_unlock(&slot->lock);
  return (struct verdict){fate, missing};
}

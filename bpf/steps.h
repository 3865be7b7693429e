// Loops over values, a step at a time, that the verifier follows in few instructions. It knows
// bounds of the offset but not its value, so all ways out of a loop are the same state to it.
#pragma once

#include "datagram.h"
#include "tag.h"

// Keeps the compiler from turning values that are computed from x into running offsets.
static __always_inline __u32 hidden(__u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Runs the statement for each step, from the last to the first; `at` is its first value's number.
#define FOR_STEPS(at, steps)                                                       \
  for (__u32 left_ = hidden(steps), at; left_ > 0 && (at = (left_ - 1) * STEP, 1); \
       left_ = hidden(left_ - 1))

static __always_inline __u64 nh_values(const __u32* values, const void* end, __u32 steps,
                                       const struct tag_key* key) {
  __u64 sum = 0;
  FOR_STEPS(at, steps) {
    const __u32* in = values + at;
    if ((const void*)(in + STEP) > end) break;
    sum = nh_step(sum, in, key->words + 2 + at);
  }
  return sum;
}

static __always_inline void copy_step(__u32* out, const __u32* in) {
#pragma clang loop unroll(full)
  for (int i = 0; i < STEP / 2; i++) ((__u64*)out)[i] = ((const __u64*)in)[i];
}

static __always_inline void add_step(__u32* sums, const __u32* in) {
  asm volatile("" : "+r"(sums));
#pragma clang loop unroll(full)
  for (int i = 0; i < STEP; i++) sums[i] += in[i];
}

// The first values of a round.
static __always_inline void start_values(__u32* sums, const __u32* values, const void* end,
                                         __u32 steps) {
  FOR_STEPS(at, steps) {
    const __u32* in = values + at;
    if ((const void*)(in + STEP) > end) break;
    copy_step(sums + at, in);
  }
}

static __always_inline void add_values(__u32* sums, const __u32* values, const void* end,
                                       __u32 steps) {
  FOR_STEPS(at, steps) {
    const __u32* in = values + at;
    if ((const void*)(in + STEP) > end) break;
    add_step(sums + at, in);
  }
}

// Writes the sums after the head of a datagram, and returns their NH.
static __always_inline __u64 give_values(__u32* values, const void* end, const __u32* sums,
                                         __u32 steps, const struct tag_key* key) {
  __u64 sum = 0;
  FOR_STEPS(at, steps) {
    __u32* out = values + at;
    if ((const void*)(out + STEP) > end) break;
    copy_step(out, sums + at);
    sum = nh_step(sum, sums + at, key->words + 2 + at);
  }
  return sum;
}

// Internet checksums (RFC 1071), a step at a time: one's complement sums of 16-bit words.
#pragma once

#include "frame.h"
#include "steps.h"

static __always_inline __u16 folded(__u64 sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __u64 sum_of_words(const __u32* words, int count) {
  __u64 sum = 0;
#pragma clang loop unroll(full)
  for (int i = 0; i < count; i++) sum += words[i];
  return sum;
}

static __always_inline __u64 sum_of_address(const struct address* address, bool is_v6) {
  return is_v6 ? sum_of_words(address->word, 4) : address->word[3];
}

static __always_inline __u64 sum_of_datagram(const struct frame* frame, __u32 steps) {
  const __u32* values = (const __u32*)(frame->datagram + 1);
  __u64 sum = sum_of_words((const __u32*)frame->datagram, sizeof(struct datagram) / 4);
  FOR_STEPS(at, steps) {
    const __u32* in = values + at;
    if ((const void*)(in + STEP) > frame->end) break;
    sum += sum_of_words(in, STEP);
  }
  return sum;
}

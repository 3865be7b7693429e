// The keyed tag of a datagram, as core/wire/tag.hpp defines it: NH of record and values, under
// SipHash-1-3 of the header.
#pragma once

#include "datagram.h"

enum { TAG_WORDS = 2 + MAX_BLOCK };

struct tag_key {
  __u64 sip[2];
  __u32 words[TAG_WORDS];  // NH's, for the record and a whole block
};

// The keys between an aggregator and its workers: from the workers, and back.
struct way_keys {
  struct tag_key up, down;
};

struct sip {
  __u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotated(__u64 x, int by) { return x << by | x >> (64 - by); }

static __always_inline void sip_round(struct sip* s) {
  s->v0 += s->v1, s->v1 = rotated(s->v1, 13) ^ s->v0, s->v0 = rotated(s->v0, 32);
  s->v2 += s->v3, s->v3 = rotated(s->v3, 16) ^ s->v2;
  s->v0 += s->v3, s->v3 = rotated(s->v3, 21) ^ s->v0;
  s->v2 += s->v1, s->v1 = rotated(s->v1, 17) ^ s->v2, s->v2 = rotated(s->v2, 32);
}

static __always_inline void sip_take(struct sip* s, __u64 word) {
  s->v3 ^= word;
  sip_round(s);
  s->v0 ^= word;
}

static __always_inline __u64 nh_pair(__u32 a, __u32 b, const __u32* key) {
  return (__u64)(a + key[0]) * (__u32)(b + key[1]);
}

// Adds NH of one step of values. Pair by pair: with many at once, clang runs out of registers.
static __always_inline __u64 nh_step(__u64 sum, const __u32* values, const __u32* key) {
#pragma clang loop unroll(full)
  for (int i = 0; i < STEP; i += 2) {
    sum += nh_pair(values[i], values[i + 1], key + i);
    asm volatile("" : "+r"(sum));
  }
  return sum;
}

// The tag, once NH of the values is known.
static __always_inline __u64 tag_of(const struct datagram* datagram, __u64 nh_of_values,
                                    __u32 steps, const struct tag_key* key) {
  const __u64* head = (const __u64*)datagram;
  const __u64 nh = nh_of_values + nh_pair(datagram->next, ((const __u32*)datagram)[11], key->words);
  struct sip s = {key->sip[0] ^ 0x736f6d6570736575, key->sip[1] ^ 0x646f72616e646f6d,
                  key->sip[0] ^ 0x6c7967656e657261, key->sip[1] ^ 0x7465646279746573};
  sip_take(&s, head[0]);
  sip_take(&s, head[1]);
  sip_take(&s, head[2]);
  sip_take(&s, head[3]);
  sip_take(&s, nh);
  sip_take(&s, 8 + steps * STEP * sizeof(__u32));
  sip_take(&s, 48ull << 56);
  s.v2 ^= 0xff;
  sip_round(&s);
  sip_round(&s);
  sip_round(&s);
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

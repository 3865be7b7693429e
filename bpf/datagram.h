// A datagram as core/wire/datagram.hpp lays it out, with one column. Its fields are little endian;
// those of the headers around it are in network order.
#pragma once

#include <linux/types.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "datagrams are little endian, and so must the machine be"
#endif

enum { DATAGRAM_VERSION = 2 };
enum kind { CONTRIBUTION = 1, RESULT, RECALL, HELLO, WELCOME };
enum { INT32 = 4, SUM = 0 };  // DType and ReduceOp, core/base/types.hpp

// Values come in steps, so that loops over them are short.
enum { STEP = 16, MAX_BLOCK = 256, MAX_STEPS = MAX_BLOCK / STEP };

// Naturally aligned, and so not packed: clang would read a packed struct byte by byte.
struct datagram {
  __u8 version, kind;
  __u16 worker, slot;
  __u8 columns, present;
  __u64 job;
  __u32 epoch;
  __u8 dtype, op;
  __u16 block;
  __u64 round;
  __u64 tag;
  // The record of the one column.
  __u32 next;
  __u8 exponent, zeros[3];
};
_Static_assert(sizeof(struct datagram) == 48, "as on the wire");

static inline __attribute__((always_inline)) __u32 bytes_of(__u32 steps) {
  return sizeof(struct datagram) + steps * STEP * sizeof(__u32);
}

// Whether these slots add up blocks of this size.
static __always_inline int is_block(__u32 block) {
  return block && block % STEP == 0 && block <= MAX_BLOCK;
}

// 0 if the datagram brings no values.
static __always_inline __u32 steps_of(__u32 present, __u32 block) {
  return present ? block / STEP : 0;
}

// Writes the headers of an answer over those of what called for it: first what all receivers have
// in common, then what differs, for each.
#pragma once

#include "checksum.h"

// IPv4's own checksum covers its header alone, and UDP's may be left out there. In IPv6, UDP's
// covers everything. In place of it stands the sum of what does not depend on the receiver.
static __always_inline __sum16* checksum_of(const struct frame* frame) {
  return frame->is_v6 ? &frame->udp->check : &((struct iphdr*)frame->ip)->check;
}

static __always_inline void write_headers(const struct frame* frame, __u32 steps) {
  const __u32 all = sizeof(struct udphdr) + bytes_of(steps);
  frame->udp->source = port;
  frame->udp->len = bpf_htons(all);
  frame->udp->check = 0;
  if (frame->is_v6) {
    struct ipv6hdr* ip = frame->ip;
    ip->payload_len = bpf_htons(all);
    ip->hop_limit = HOPS;
    frame->udp->check = folded(sum_of_datagram(frame, steps) + port + 2ull * bpf_htons(all) +
                               bpf_htons(IPPROTO_UDP));
  } else {
    struct iphdr* ip = frame->ip;
    ip->tot_len = bpf_htons(sizeof(struct iphdr) + all);
    ip->ttl = HOPS;
    ip->check = 0;
    ip->check = folded(sum_of_words(frame->ip, 3));
  }
}

static __always_inline void write_address(__be32* last, const struct address* address, bool is_v6) {
  *last = address->word[3];
  if (!is_v6) return;
  last[-1] = address->word[2];
  last[-2] = address->word[1];
  last[-3] = address->word[0];
}

// Completes the headers; `sum` is what write_headers left in place of the checksum.
static __always_inline void address_to(const struct frame* frame, const struct worker* to,
                                       __u16 sum) {
  const __u64 addresses =
      sum_of_address(&to->local, frame->is_v6) + sum_of_address(&to->address, frame->is_v6);
  *frame->ends = reversed(to->ends);
  write_address(frame->from, &to->local, frame->is_v6);
  write_address(frame->to, &to->address, frame->is_v6);
  frame->udp->dest = to->port;
  const __u16 checksum = ~folded(sum + addresses + (frame->is_v6 ? to->port : 0));
  // Of UDP, 0 means that there is none; in one's complement it is the same as its inverse.
  *checksum_of(frame) = checksum || !frame->is_v6 ? checksum : 0xffff;
}

// Of UDP: stands in place of the checksum where that is completed further on.
static __always_inline __u16 sum_for_udp(const struct frame* frame, const struct worker* to) {
  return folded(sum_of_address(&to->local, frame->is_v6) +
                sum_of_address(&to->address, frame->is_v6) + frame->udp->len +
                bpf_htons(IPPROTO_UDP));
}

// Writes the headers of an answer over those of the datagram that it answers: first the fields that
// all receivers share, then those of each receiver.
#pragma once

#include "checksum.h"

// The parts of the two checksums (IPv4's, of its header, and UDP's, of everything) that do not
// depend on the receiver. They stand in the checksums' fields until it is known. UDP's could be
// left out over IPv4, but the system merges only datagrams that have one.
struct sums {
  __u16 ip, udp;
};

static __always_inline struct sums sums_in(const struct frame* frame) {
  const struct iphdr* ip = frame->ip;
  return (struct sums){frame->is_v6 ? 0 : ip->check, frame->udp->check};
}

static __always_inline void write_headers(const struct frame* frame, __u32 steps) {
  const __u32 all = sizeof(struct udphdr) + bytes_of(steps);
  frame->udp->source = port;
  frame->udp->len = bpf_htons(all);
  frame->udp->check =
      folded(sum_of_datagram(frame, steps) + port + 2ull * bpf_htons(all) + bpf_htons(IPPROTO_UDP));
  if (frame->is_v6) {
    struct ipv6hdr* ip = frame->ip;
    ip->payload_len = bpf_htons(all);
    ip->hop_limit = HOPS;
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

// Completes the headers. write_headers has left `sums` in place of the checksums.
static __always_inline void address_to(const struct frame* frame, const struct worker* to,
                                       struct sums sums) {
  const __u64 addresses =
      sum_of_address(&to->local, frame->is_v6) + sum_of_address(&to->address, frame->is_v6);
  *frame->ends = reversed(to->ends);
  write_address(frame->from, &to->local, frame->is_v6);
  write_address(frame->to, &to->address, frame->is_v6);
  frame->udp->dest = to->port;
  const __u16 check = ~folded(sums.udp + addresses + to->port);
  // In UDP 0 means that there is no checksum. In one's complement 0xffff is the same number.
  frame->udp->check = check ?: 0xffff;
  if (!frame->is_v6) ((struct iphdr*)frame->ip)->check = ~folded(sums.ip + addresses);
}

// Stands in place of UDP's checksum if the system completes that further on.
static __always_inline __u16 sum_for_udp(const struct frame* frame, const struct worker* to) {
  return folded(sum_of_address(&to->local, frame->is_v6) +
                sum_of_address(&to->address, frame->is_v6) + frame->udp->len +
                bpf_htons(IPPROTO_UDP));
}

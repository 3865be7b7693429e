// The headers around a datagram: UDP over IPv4, without options.
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdbool.h>

#include "job.h"

enum { HEADERS = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr), FRAGMENT = 0x3fff };

// The aggregator's, in network order; written before the programs are loaded.
const volatile __u16 port = 0;

struct frame {
  void* end;
  struct ends* ends;
  __be16* protocol;  // of Ethernet, whose own struct is packed, and would be read byte by byte
  struct iphdr* ip;
  struct udphdr* udp;
  struct datagram* datagram;
};

// False where the bytes are too few for all headers.
static __always_inline bool look_at(struct frame* frame, __u32 data, __u32 end) {
  void* start = (void*)(long)data;
  frame->end = (void*)(long)end;
  frame->ends = start;
  frame->protocol = start + sizeof(struct ends);
  frame->ip = start + ETH_HLEN;
  frame->udp = start + ETH_HLEN + sizeof(struct iphdr);
  frame->datagram = start + HEADERS;
  return (void*)(frame->datagram + 1) <= frame->end;
}

static __always_inline bool is_contribution(const struct frame* frame) {
  const __u8 without_options = 0x45;
  return *frame->protocol == bpf_htons(ETH_P_IP) && *(const __u8*)frame->ip == without_options &&
         frame->ip->protocol == IPPROTO_UDP && !(frame->ip->frag_off & bpf_htons(FRAGMENT)) &&
         frame->udp->dest == port && frame->datagram->version == DATAGRAM_VERSION &&
         frame->datagram->kind == CONTRIBUTION;
}

// Sender and receiver change places.
static __always_inline struct ends reversed(struct ends ends) {
  const __u32* word = ends.word;
  return (struct ends){{word[1] >> 16 | word[2] << 16, word[2] >> 16 | word[0] << 16,
                        word[0] >> 16 | word[1] << 16}};
}

static __always_inline __u16 folded(__u32 sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  return sum + (sum >> 16);
}

static __always_inline __u32 halves(__be32 address) { return (address & 0xffff) + (address >> 16); }

// Headers of an answer of so many bytes, but for what depends on the receiver. The checksum is the
// sum of all else.
static __always_inline void write_headers(const struct frame* frame, __u32 bytes) {
  struct iphdr* ip = frame->ip;
  ip->tot_len = bpf_htons(sizeof(struct iphdr) + sizeof(struct udphdr) + bytes);
  ip->ttl = 64;
  const __u16* half = (const __u16*)ip;
  ip->check = folded((__u32)half[0] + half[1] + half[2] + half[3] + half[4]);
  frame->udp->source = port;
  frame->udp->len = bpf_htons(sizeof(struct udphdr) + bytes);
  frame->udp->check = 0;
}

// Completes the headers; `sum` is what write_headers left in place of the checksum.
static __always_inline void address_to(const struct frame* frame, const struct worker* to,
                                       __u16 sum) {
  *frame->ends = reversed(to->ends);
  frame->ip->saddr = to->local;
  frame->ip->daddr = to->address;
  frame->ip->check = ~folded(sum + halves(to->local) + halves(to->address));
  frame->udp->dest = to->port;
}

// What the checksum of UDP covers besides its own bytes: stands in its place where it is to be
// completed.
static __always_inline __u16 sum_of_addresses(const struct frame* frame) {
  return folded(halves(frame->ip->saddr) + halves(frame->ip->daddr) + frame->udp->len +
                bpf_htons(IPPROTO_UDP));
}

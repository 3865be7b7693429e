// The headers around a datagram: UDP over IPv4 without options, or over IPv6 without extensions,
// behind one VLAN tag or none. Each look_at reads the headers anew.
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>

#include "job.h"

enum { FRAGMENT = 0x3fff, VLAN_TAG = 4, HOPS = 64 };
enum {
  MOST_HEADERS = ETH_HLEN + VLAN_TAG + sizeof(struct ipv6hdr) + sizeof(struct udphdr),
};

// The aggregator's port and address, in network order; written before the programs are loaded.
const volatile __u16 port = 0;
const volatile struct address own_address = {};  // zeros: any

struct frame {
  void* end;
  struct ends* ends;
  // From the Ethernet header, whose own struct is packed, and would be read byte by byte.
  __be16 protocol;
  bool is_v6;
  void* ip;
  // The last words of the addresses; an IPv4 address has only this word.
  __be32 *from, *to;
  struct udphdr* udp;
  __u32 headers;  // in bytes
  struct datagram* datagram;
};

// False if the bytes are too few for all headers.
static __always_inline bool look_at(struct frame* frame, __u32 data, __u32 end) {
  void* start = (void*)(long)data;
  frame->end = (void*)(long)end;
  frame->ends = start;
  if (start + ETH_HLEN + VLAN_TAG > frame->end) return false;
  __u32 at = ETH_HLEN;
  frame->protocol = *(__be16*)(start + at - 2);
  if (frame->protocol == bpf_htons(ETH_P_8021Q)) {
    at += VLAN_TAG;
    frame->protocol = *(__be16*)(start + at - 2);
  }
  frame->is_v6 = frame->protocol == bpf_htons(ETH_P_IPV6);
  frame->ip = start + at;
  at += frame->is_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
  frame->from = start + at - (frame->is_v6 ? 20 : 8);
  frame->to = start + at - 4;
  frame->udp = start + at;
  frame->headers = at + sizeof(struct udphdr);
  frame->datagram = start + frame->headers;
  return (void*)(frame->datagram + 1) <= frame->end;
}

static __always_inline bool is_udp(const struct frame* frame) {
  const struct iphdr* v4 = frame->ip;
  const struct ipv6hdr* v6 = frame->ip;
  const __u8 without_options = 0x45;
  if (frame->is_v6) return v6->nexthdr == IPPROTO_UDP;
  return frame->protocol == bpf_htons(ETH_P_IP) && *(const __u8*)v4 == without_options &&
         v4->protocol == IPPROTO_UDP && !(v4->frag_off & bpf_htons(FRAGMENT));
}

// Whether all headers say that `bytes` bytes follow the UDP header, and the frame has them.
static __always_inline bool has_bytes(const struct frame* frame, __u32 bytes) {
  const __u32 all = sizeof(struct udphdr) + bytes;
  const __be16 told = frame->is_v6 ? ((struct ipv6hdr*)frame->ip)->payload_len
                                   : ((struct iphdr*)frame->ip)->tot_len;
  return frame->udp->len == bpf_htons(all) &&
         told == bpf_htons(frame->is_v6 ? all : all + sizeof(struct iphdr)) &&
         (void*)frame->udp + all <= frame->end;
}

static __always_inline bool is_same(const __be32* last, const struct address* address, bool is_v6) {
  const __be32* word = address->word;
  if (!is_v6) return *last == word[3] && word[2] == MAPPED;
  return last[0] == word[3] && last[-1] == word[2] && last[-2] == word[1] && last[-3] == word[0];
}

// A host that forwards sees packets to other hosts, too.
static __always_inline bool is_to_us(const struct frame* frame) {
  const struct address own = own_address;
  const bool is_any = !(own.word[0] | own.word[1] | own.word[2] | own.word[3]);
  return is_any || is_same(frame->to, &own, frame->is_v6);
}

// Whether it is a datagram for the aggregator.
static __always_inline bool is_ours(const struct frame* frame) {
  return is_udp(frame) && frame->udp->dest == port && is_to_us(frame) &&
         frame->datagram->version == DATAGRAM_VERSION;
}

static __always_inline struct address address_at(const __be32* last, bool is_v6) {
  if (!is_v6) return (struct address){{0, 0, MAPPED, *last}};
  return (struct address){{last[-3], last[-2], last[-1], last[0]}};
}

static __always_inline bool came_from(const struct frame* frame, const struct worker* worker) {
  return frame->udp->source == worker->port && is_same(frame->from, &worker->address, frame->is_v6);
}

// Sender and receiver change places.
static __always_inline struct ends reversed(struct ends ends) {
  const __u32* word = ends.word;
  return (struct ends){{word[1] >> 16 | word[2] << 16, word[2] >> 16 | word[0] << 16,
                        word[0] >> 16 | word[1] << 16}};
}

// A reply in a socket buffer: written over the datagram that it answers, and sent to each receiver
// in turn.
#pragma once

#include <stddef.h>

#include "reply.h"

// Whether the system completes UDP's checksum further on, as in packets of this machine's own.
static __always_inline bool completes_checksum(struct __sk_buff* skb, __u32 offset) {
  __u16 check = 0;
  bpf_skb_store_bytes(skb, offset, &check, sizeof(check), 0);
  // Changes a checksum of 0, unless the system completes it further on.
  bpf_l4_csum_replace(skb, offset, 0, 1, sizeof(__u16));
  check = 1;
  bpf_skb_load_bytes(skb, offset, &check, sizeof(check));
  return check == 0;
}

struct letter {
  struct __sk_buff* skb;
  struct reply reply;
  __u32 headers;
  struct sums sums;  // as write_headers left them
  bool completes_checksum;
};

static long post(__u32 number, void* context) {
  const struct letter* letter = context;
  struct __sk_buff* skb = letter->skb;
  struct frame frame;
  const struct reply* reply = &letter->reply;
  const struct worker* to = receiver(reply->place, reply->to == EVERYONE ? number : reply->to);
  if (!to || !to->is_known) return 0;
  // Copies that were sent before share the bytes.
  if (bpf_skb_pull_data(skb, letter->headers + sizeof(struct datagram))) return 0;
  if (!look_at(&frame, skb->data, skb->data_end)) return 0;
  address_to(&frame, to, letter->sums);
  if (letter->completes_checksum) frame.udp->check = sum_for_udp(&frame, to);
  bpf_clone_redirect(skb, skb->ifindex, 0);
  return 0;
}

static __always_inline bool write_letter(struct letter* letter, const struct tag_key* key) {
  struct __sk_buff* skb = letter->skb;
  struct frame frame;
  const struct version* version = version_at(letter->reply.place);
  if (!version || !look_at(&frame, skb->data, skb->data_end)) return false;
  const __u32 steps = reply_steps(&letter->reply, version);
  letter->headers = frame.headers;
  if (bpf_skb_change_tail(skb, letter->headers + bytes_of(steps), 0)) return false;
  if (!look_at(&frame, skb->data, skb->data_end)) return false;
  write_reply(&frame, &letter->reply, version, steps, key);
  letter->sums = sums_in(&frame);
  const __u32 offset = letter->headers - sizeof(struct udphdr) + offsetof(struct udphdr, check);
  letter->completes_checksum = completes_checksum(skb, offset);
  return true;
}

static __always_inline void deliver(struct letter* letter) {
  const struct job* job = job_at(letter->reply.place);
  const __u32 copies = job && letter->reply.to == EVERYONE ? job->workers : 1;
  if (job && write_letter(letter, reply_key(job, &letter->reply)))
    bpf_loop(copies, post, letter, 0);
}

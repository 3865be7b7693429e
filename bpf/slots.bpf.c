// The aggregator in the kernel's data plane. `contribute` takes the contributions that arrive at an
// interface, and passes on everything else. `copy` addresses the copies of a result. `grow` sends
// results for which the driver's frame had no room.
#include <linux/pkt_cls.h>
#include <stddef.h>

#include "decide.h"

const char programs_license[] SEC("license") = "Dual BSD/GPL";

// For `grow`, in front of the packet, where nothing that comes from outside can stand.
static __always_inline int hand_over(struct xdp_md* ctx, const struct reply* reply) {
  if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*reply))) return XDP_DROP;
  struct reply* meta = (void*)(long)ctx->data_meta;
  if ((void*)(meta + 1) > (void*)(long)ctx->data) return XDP_DROP;
  *meta = *reply;
  return XDP_PASS;
}

// By way of `copy`, which reads the ticket from the address, and writes the address over it. Not by
// XDP_TX, which waits in a veth until something else goes there, unless its peer has a program,
// too.
static __always_inline int send(const struct frame* frame, const struct reply* reply) {
  const __u32 job = job_index_of(reply->place);
  void* devmap = bpf_map_lookup_elem(&copies, &job);
  *frame->to = reply->place << 8 | reply->to;
  return devmap ? bpf_redirect_map(devmap, 0, reply->to == EVERYONE ? BPF_F_BROADCAST : 0)
                : XDP_DROP;
}

static __always_inline int answer(struct xdp_md* ctx, __u32 headers, const struct reply* reply,
                                  const struct tag_key* key) {
  struct frame frame;
  const struct version* version = version_at(reply->place);
  if (!version) return XDP_DROP;
  const __u32 steps = reply_steps(version);
  const int length = hidden(ctx->data_end - ctx->data);
  const int more = headers + bytes_of(steps) - length;
  if (more && bpf_xdp_adjust_tail(ctx, more)) return hand_over(ctx, reply);
  if (!look_at(&frame, ctx->data, ctx->data_end)) return XDP_DROP;
  write_reply(&frame, reply, version, steps, key);
  return send(&frame, reply);
}

SEC("xdp")
int contribute(struct xdp_md* ctx) {
  struct frame frame;
  struct speaker speaker = {};
  struct reply reply;
  if (!look_at(&frame, ctx->data, ctx->data_end) || !is_ours(&frame)) return XDP_PASS;
  switch (decide(&frame, &speaker, &reply)) {
    case LEFT_ALONE:
      return XDP_PASS;
    case DROPPED:
      return XDP_DROP;
    case ANSWERED:
      return answer(ctx, frame.headers, &reply, &speaker.job->key);
  }
  return XDP_DROP;
}

SEC("xdp/devmap")
int copy(struct xdp_md* ctx) {
  struct frame frame;
  if (!look_at(&frame, ctx->data, ctx->data_end)) return XDP_DROP;
  const place place = *frame.to >> 8;
  struct version* version = version_at(place);
  if (!version) return XDP_DROP;
  __u32 number = *frame.to % 256;
  // All copies of one result pass here one by one, on one processor.
  if (number == EVERYONE) number = version->told++;
  const struct worker* to = receiver(job_index_of(place), number);
  if (!to || !to->is_known) return XDP_DROP;
  address_to(&frame, to, *checksum_of(&frame));
  return XDP_PASS;
}

// Whether the checksum of UDP is completed further on, as it is of what never left this machine.
static __always_inline bool completes_checksum(struct __sk_buff* skb, __u32 offset) {
  __u16 check = 0;
  bpf_skb_store_bytes(skb, offset, &check, sizeof(check), 0);
  // Changes a checksum of 0, unless it is one of those.
  bpf_l4_csum_replace(skb, offset, 0, 1, sizeof(__u16));
  check = 1;
  bpf_skb_load_bytes(skb, offset, &check, sizeof(check));
  return check == 0;
}

struct letter {
  struct __sk_buff* skb;
  struct reply reply;
  __u32 headers;
  __u16 sum;  // of write_headers
  bool completes_checksum;
};

static long post(__u32 number, void* context) {
  const struct letter* letter = context;
  struct __sk_buff* skb = letter->skb;
  struct frame frame;
  const struct reply* reply = &letter->reply;
  const struct worker* to =
      receiver(job_index_of(reply->place), reply->to == EVERYONE ? number : reply->to);
  if (!to || !to->is_known) return 0;
  // Those that went before share the bytes.
  if (bpf_skb_pull_data(skb, letter->headers + sizeof(struct datagram))) return 0;
  if (!look_at(&frame, skb->data, skb->data_end)) return 0;
  frame.udp->check = 0;
  address_to(&frame, to, letter->sum);
  if (letter->completes_checksum) frame.udp->check = sum_for_udp(&frame, to);
  bpf_clone_redirect(skb, skb->ifindex, 0);
  return 0;
}

static __always_inline bool write_letter(struct letter* letter, const struct tag_key* key) {
  struct __sk_buff* skb = letter->skb;
  struct frame frame;
  const struct version* version = version_at(letter->reply.place);
  if (!version || !look_at(&frame, skb->data, skb->data_end)) return false;
  const __u32 steps = reply_steps(version);
  letter->headers = frame.headers;
  if (bpf_skb_change_tail(skb, letter->headers + bytes_of(steps), 0)) return false;
  if (!look_at(&frame, skb->data, skb->data_end)) return false;
  write_reply(&frame, &letter->reply, version, steps, key);
  letter->sum = *checksum_of(&frame);
  const __u32 offset = letter->headers - sizeof(struct udphdr) + offsetof(struct udphdr, check);
  letter->completes_checksum = completes_checksum(skb, offset);
  return true;
}

SEC("tc")
int grow(struct __sk_buff* skb) {
  const struct reply* meta = (void*)(long)skb->data_meta;
  if ((void*)(meta + 1) > (void*)(long)skb->data) return TC_ACT_UNSPEC;
  struct letter letter = {.skb = skb, .reply = *meta};
  const struct job* job = job_at(letter.reply.place);
  const __u32 copies = job && letter.reply.to == EVERYONE ? job->workers : 1;
  if (job && write_letter(&letter, &job->key)) bpf_loop(copies, post, &letter, 0);
  return TC_ACT_SHOT;
}

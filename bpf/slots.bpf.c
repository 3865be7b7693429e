// The aggregator in the kernel's data plane. `contribute` takes the contributions that arrive at an
// interface, and passes on everything else. `copy` addresses the copies of a result. `grow` sends
// results for which the driver's frame had no room. `contribute_slowly` does all of that by itself
// if a driver takes no XDP.
#include <linux/pkt_cls.h>

#include "decide.h"
#include "letter.h"

const char programs_license[] SEC("license") = "Dual BSD/GPL";

// Leaves the reply to `grow` in front of the packet, where no data from outside can stand.
static __always_inline int hand_over(struct xdp_md* ctx, const struct reply* reply) {
  if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*reply))) return XDP_DROP;
  struct reply* meta = (void*)(long)ctx->data_meta;
  if ((void*)(meta + 1) > (void*)(long)ctx->data) return XDP_DROP;
  *meta = *reply;
  return XDP_PASS;
}

// Sends by way of `copy`, which reads place and receiver from the address field, and writes the
// address over them. XDP_TX would not do: in a veth whose peer has no program, its frames wait
// until something else goes there.
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
  const __u32 steps = reply_steps(reply, version);
  const int length = hidden(ctx->data_end - ctx->data);
  const int more = headers + bytes_of(steps) - length;
  if (more && bpf_xdp_adjust_tail(ctx, more)) return hand_over(ctx, reply);
  if (!look_at(&frame, ctx->data, ctx->data_end)) return XDP_DROP;
  write_reply(&frame, reply, version, steps, key);
  return send(&frame, reply);
}

SEC("xdp.frags")
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
      return answer(ctx, frame.headers, &reply, reply_key(speaker.job, &reply));
  }
  return XDP_DROP;
}

SEC("xdp.frags/devmap")
int copy(struct xdp_md* ctx) {
  struct frame frame;
  if (!look_at(&frame, ctx->data, ctx->data_end)) return XDP_DROP;
  const place place = *frame.to >> 8;
  struct version* version = version_at(place);
  if (!version) return XDP_DROP;
  __u32 number = *frame.to % 256;
  // All copies of one result pass here one by one, on one processor.
  if (number == EVERYONE) number = version->told++;
  const struct worker* to = receiver(place, number);
  if (!to || !to->is_known) return XDP_DROP;
  address_to(&frame, to, sums_in(&frame));
  return XDP_PASS;
}

// Run once by the process: sends a frame out of its own interface, to see whether it leaves.
SEC("xdp")
int try_way_out(struct xdp_md* ctx) { return bpf_redirect(ctx->ingress_ifindex, 0); }

SEC("tc")
int grow(struct __sk_buff* skb) {
  const struct reply* meta = (void*)(long)skb->data_meta;
  if ((void*)(meta + 1) > (void*)(long)skb->data) return TC_ACT_UNSPEC;
  struct letter letter = {.skb = skb, .reply = *meta};
  deliver(&letter);
  return TC_ACT_SHOT;
}

// Makes `bytes` bytes readable, or all if there are fewer, and looks at the frame.
static __always_inline bool pull(struct __sk_buff* skb, struct frame* frame, __u32 bytes) {
  return !bpf_skb_pull_data(skb, bytes < skb->len ? bytes : skb->len) &&
         look_at(frame, skb->data, skb->data_end);
}

// Several datagrams that travel as one are left to the process, which warns.
SEC("tc")
int contribute_slowly(struct __sk_buff* skb) {
  struct frame frame;
  struct speaker speaker = {};
  struct letter letter = {.skb = skb};
  if (!pull(skb, &frame, MOST_HEADERS + bytes_of(0)) || !is_ours(&frame)) return TC_ACT_UNSPEC;
  if (skb->gso_size || !pull(skb, &frame, MOST_HEADERS + bytes_of(MAX_STEPS))) return TC_ACT_UNSPEC;
  switch (decide(&frame, &speaker, &letter.reply)) {
    case LEFT_ALONE:
      return TC_ACT_UNSPEC;
    case DROPPED:
      return TC_ACT_SHOT;
    case ANSWERED:
      deliver(&letter);
  }
  return TC_ACT_SHOT;
}

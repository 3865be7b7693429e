// The aggregator in the kernel's data plane. `contribute` takes the contributions that arrive at an
// interface, and passes on everything else. `copy` addresses the copies of a result. `grow` sends
// results for which the driver's frame had no room.
#include <linux/pkt_cls.h>
#include <stddef.h>

#include "reply.h"

const char programs_license[] SEC("license") = "Dual BSD/GPL";

// What has been looked up for a contribution.
struct sender {
  __u32 job_index;
  const struct job* job;
  struct worker* worker;
};

static __always_inline bool is_known(const struct frame* frame, struct sender* sender) {
  const struct datagram* in = frame->datagram;
  const __u32* index = bpf_map_lookup_elem(&places, &in->job);
  sender->job_index = index ? *index : MAX_JOBS;
  if (!index) return false;
  sender->job = bpf_map_lookup_elem(&jobs, index);
  sender->worker = worker_of(*index, in->worker);
  return sender->job && sender->worker && in->epoch == sender->job->epoch &&
         in->worker < sender->job->workers && frame->udp->source == sender->worker->port &&
         frame->ip->saddr == sender->worker->address;
}

// Whether it is one that these slots add up, and as long as it says.
static __always_inline bool is_whole(const struct frame* frame) {
  const struct datagram* in = frame->datagram;
  const __u32 bytes = sizeof(struct udphdr) + reply_bytes(steps_of(in->present, in->block));
  return in->slot < MAX_SLOTS && in->columns == 1 && in->present <= 1 && in->dtype == INT32 &&
         in->op == SUM && in->zero == 0 && in->block && in->block % STEP == 0 &&
         in->block <= MAX_BLOCK && frame->udp->len == bpf_htons(bytes) &&
         frame->ip->tot_len == bpf_htons(sizeof(struct iphdr) + bytes) &&
         (void*)frame->udp + bytes <= frame->end;
}

static __always_inline bool is_sealed(const struct frame* frame, const struct sender* sender,
                                      __u32 steps) {
  const struct datagram* in = frame->datagram;
  const struct tag_key* key = &sender->job->key;
  const __u64 nh = nh_values((const __u32*)(in + 1), frame->end, steps, key);
  return in->tag == tag_of(in, nh, steps, key);
}

// So that it need not be asked for who wants an answer.
static __always_inline void learn_path(const struct frame* frame, struct worker* worker) {
  const struct ends now = *frame->ends, old = worker->ends;
  const __u32 differs = (now.word[0] ^ old.word[0]) | (now.word[1] ^ old.word[1]) |
                        (now.word[2] ^ old.word[2]) | (frame->ip->daddr ^ worker->local);
  if (!differs) return;
  worker->ends = now;
  worker->local = frame->ip->daddr;
}

static __always_inline void count(__u32 job, enum fate fate) {
  struct counters* counters = counters_of(job);
  if (!counters) return;
  counters->contributions += fate == TAKEN || fate == COMPLETED;
  counters->results += fate == COMPLETED;
  counters->duplicates += fate == RESENT || fate == RECALLED;
  counters->resent += fate == RESENT;
  counters->recalls += fate == RECALLED;
  counters->stale += fate == STALE;
  counters->rejected += fate == REJECTED;
}

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
  frame->ip->daddr = reply->place << 8 | reply->to;
  return devmap ? bpf_redirect_map(devmap, 0, reply->to == EVERYONE ? BPF_F_BROADCAST : 0)
                : XDP_DROP;
}

static __always_inline int answer(struct xdp_md* ctx, const struct reply* reply,
                                  const struct tag_key* key) {
  struct frame frame;
  const struct version* version = version_at(reply->place);
  if (!version) return XDP_DROP;
  const __u32 steps = reply_steps(version);
  const int more = HEADERS + reply_bytes(steps) - (int)(ctx->data_end - ctx->data);
  if (more && bpf_xdp_adjust_tail(ctx, more)) return hand_over(ctx, reply);
  if (!look_at(&frame, ctx->data, ctx->data_end)) return XDP_DROP;
  write_reply(&frame, reply, version, steps, key);
  return send(&frame, reply);
}

SEC("xdp")
int contribute(struct xdp_md* ctx) {
  struct frame frame;
  struct sender sender = {};
  if (!look_at(&frame, ctx->data, ctx->data_end) || !is_contribution(&frame)) return XDP_PASS;
  const struct datagram* in = frame.datagram;
  const __u32 steps = steps_of(in->present, in->block);
  if (!is_known(&frame, &sender) || !is_whole(&frame) || steps > MAX_STEPS ||
      !is_sealed(&frame, &sender, steps)) {
    count(sender.job_index, REJECTED);
    return XDP_DROP;
  }
  learn_path(&frame, sender.worker);
  struct slot* slot = slot_of(sender.job_index, in->slot);
  if (!slot) return XDP_DROP;
  const struct verdict verdict = take(slot, in, frame.end, steps, everyone(sender.job));
  count(sender.job_index, verdict.fate);
  if (verdict.fate < COMPLETED) return XDP_DROP;
  const struct reply reply = reply_to(in, sender.job_index, verdict);
  return answer(ctx, &reply, &sender.job->key);
}

SEC("xdp/devmap")
int copy(struct xdp_md* ctx) {
  struct frame frame;
  if (!look_at(&frame, ctx->data, ctx->data_end)) return XDP_DROP;
  const place place = frame.ip->daddr >> 8;
  struct version* version = version_at(place);
  if (!version) return XDP_DROP;
  __u32 worker = frame.ip->daddr % 256;
  // All copies of one result pass here one by one, on one processor.
  if (worker == EVERYONE) worker = version->told++;
  const struct worker* to = worker_of(job_index_of(place), worker);
  if (!to || !to->local) return XDP_DROP;
  address_to(&frame, to, frame.ip->check);
  return XDP_PASS;
}

// Whether the checksum of UDP is completed further on, as it is of what never left this machine.
static __always_inline bool completes_checksum(struct __sk_buff* skb) {
  const int offset = HEADERS - sizeof(struct udphdr) + offsetof(struct udphdr, check);
  // Changes a checksum of 0, unless it is one of those.
  bpf_l4_csum_replace(skb, offset, 0, 1, sizeof(__u16));
  __u16 check = 1;
  bpf_skb_load_bytes(skb, offset, &check, sizeof(check));
  return check == 0;
}

struct letter {
  struct __sk_buff* skb;
  struct reply reply;
  __u16 sum;  // of write_headers
  bool completes_checksum;
};

static long post(__u32 worker, void* context) {
  const struct letter* letter = context;
  struct __sk_buff* skb = letter->skb;
  struct frame frame;
  if (letter->reply.to != EVERYONE && letter->reply.to != worker) return 0;
  const struct worker* to = worker_of(job_index_of(letter->reply.place), worker);
  // Those that went before share the bytes.
  if (!to || !to->local || bpf_skb_pull_data(skb, HEADERS + sizeof(struct datagram))) return 0;
  if (!look_at(&frame, skb->data, skb->data_end)) return 0;
  address_to(&frame, to, letter->sum);
  frame.udp->check = letter->completes_checksum ? sum_of_addresses(&frame) : 0;
  bpf_clone_redirect(skb, skb->ifindex, 0);
  return 0;
}

static __always_inline bool write_letter(struct letter* letter, const struct tag_key* key) {
  struct __sk_buff* skb = letter->skb;
  struct frame frame;
  const struct version* version = version_at(letter->reply.place);
  if (!version) return false;
  const __u32 steps = reply_steps(version);
  if (bpf_skb_change_tail(skb, HEADERS + reply_bytes(steps), 0)) return false;
  if (!look_at(&frame, skb->data, skb->data_end)) return false;
  write_reply(&frame, &letter->reply, version, steps, key);
  letter->sum = frame.ip->check;
  letter->completes_checksum = completes_checksum(skb);
  return true;
}

SEC("tc")
int grow(struct __sk_buff* skb) {
  const struct reply* meta = (void*)(long)skb->data_meta;
  if ((void*)(meta + 1) > (void*)(long)skb->data) return TC_ACT_UNSPEC;
  struct letter letter = {.skb = skb, .reply = *meta};
  const struct job* job = job_at(letter.reply.place);
  if (job && write_letter(&letter, &job->key)) bpf_loop(job->workers, post, &letter, 0);
  return TC_ACT_SHOT;
}

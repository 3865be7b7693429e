// For benchmarks/xdp_program.py: makes the contributions of all workers in turn, sealed, out of
// frames that the kernel provides, and takes away the results.
#include "../bpf/reply.h"

const char programs_license[] SEC("license") = "Dual BSD/GPL";

const volatile struct {
  __u64 job;
  __u32 epoch, workers, slots, steps;
} shape = {};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 2);
  __type(key, __u32);
  __type(value, __u64);
} progress SEC(".maps");

static __always_inline __u64* progress_of(__u32 what) {
  return bpf_map_lookup_elem(&progress, &what);
}

static __always_inline void fill(struct datagram* out, __u64 number) {
  out->version = DATAGRAM_VERSION;
  out->kind = CONTRIBUTION;
  out->worker = number % shape.workers;
  out->slot = number / shape.workers % shape.slots;
  out->round = number / shape.workers / shape.slots;
  out->columns = 1;
  out->present = shape.steps > 0;
  out->block = shape.steps ? shape.steps * STEP : MAX_BLOCK;
  out->job = shape.job;
  out->epoch = shape.epoch;
  out->dtype = INT32;
  out->op = SUM;
  out->next = 7;
  out->exponent = 100;
}

SEC("xdp")
int make(struct xdp_md* ctx) {
  struct frame frame;
  const __u32 first = 0;
  __u64* made = progress_of(0);
  const struct job* job = bpf_map_lookup_elem(&jobs, &first);
  const __u32 steps = shape.steps;
  if (!look_at(&frame, ctx->data, ctx->data_end) || !made || !job) return XDP_DROP;
  const __u64 number = (*made)++;
  fill(frame.datagram, number);
  const __u64 nh = nh_values((__u32*)(frame.datagram + 1), frame.end,
                             steps <= MAX_STEPS ? steps : 0, &job->keys.up);
  frame.datagram->tag = tag_of(frame.datagram, nh, steps, &job->keys.up);
  const struct worker* from = worker_of(0, number % shape.workers, 0);
  if (!from) return XDP_DROP;
  // What a worker sends is an answer with its ends reversed.
  struct iphdr* ip = frame.ip;
  ((__be16*)ip)[-1] = bpf_htons(ETH_P_IP);
  *(__u32*)ip = bpf_htonl(0x45000000);
  ((__u32*)ip)[1] = 0;
  ((__u32*)ip)[2] = bpf_htonl(0x40110000);
  write_headers(&frame, steps);
  address_to(&frame, from, sums_in(&frame));
  *frame.from = from->address.word[3];
  *frame.to = from->local.word[3];
  frame.udp->source = from->port;
  frame.udp->dest = port;
  return XDP_TX;
}

SEC("xdp")
int drop(struct xdp_md* ctx __attribute__((unused))) {
  __u64* taken = progress_of(1);
  if (taken) __sync_fetch_and_add(taken, 1);
  return XDP_DROP;
}

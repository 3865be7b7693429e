// The jobs that the aggregator has accepted, their workers, and what is counted for each.
#pragma once

#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include "tag.h"

enum { MAX_JOBS = 8, MAX_WORKERS = 32, MAX_FLOWS = 8 };

struct job {
  __u32 epoch;
  __u32 workers;
  __u32 flows;  // of each worker
  __u32 zero;
  struct way_keys keys;
  struct way_keys above;  // between the parent and its workers, if there is a parent
};

// The addresses of an Ethernet header, as three words: the receiver's, then the sender's.
struct ends {
  __u32 word[3];
};

// An IPv6 address, or an IPv4 address mapped into IPv6.
struct address {
  __be32 word[4];
};
enum { MAPPED = 0xffff0000 };  // the third word of a mapped address

// One flow of a worker.
struct worker {
  // Bound by the process when it answers a hello; port 0: not bound.
  struct address address;
  __be16 port;
  __u16 is_known;        // whether the next two are known
  struct address local;  // our address to which its contributions come
  struct ends ends;      // the Ethernet addresses between which they come
  __u64 greeted;         // the number of its last hello that came here, or moved the flow
};

// The aggregator above this one, if this one is a rack's. Port 0: there is none.
struct parent {
  struct worker at;
  __u16 rack, racks;  // this aggregator's number among its workers, and how many they are
  __u16 way_up;       // bytes of the longest greeting that it has answered
  __u16 zero;
};

struct counters {
  __u64 contributions, duplicates, stale, rejected, results, resent, recalls, passed, passed_again;
};

// Number of a job -> its place in the other maps.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, MAX_JOBS);
  __type(key, __u64);
  __type(value, __u32);
} places SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, MAX_JOBS);
  __type(key, __u32);
  __type(value, struct job);
} jobs SEC(".maps");

// The flows of worker w of job j are at 8 (32 j + w) to 8 (32 j + w) + 7.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, MAX_JOBS * MAX_WORKERS * MAX_FLOWS);
  __type(key, __u32);
  __type(value, struct worker);
} workers SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, MAX_JOBS);
  __type(key, __u32);
  __type(value, struct parent);
} parents SEC(".maps");

// The last entry counts contributions of no known job.
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, MAX_JOBS + 1);
  __type(key, __u32);
  __type(value, struct counters);
} counts SEC(".maps");

// For each job a devmap with an entry for each worker. All entries are our one interface, so a
// broadcast to the map makes a copy for each worker.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, MAX_JOBS);
  __type(key, __u32);
  __array(
      values, struct {
        __uint(type, BPF_MAP_TYPE_DEVMAP);
        __uint(max_entries, 1);
        __uint(key_size, sizeof(__u32));
        __uint(value_size, sizeof(struct bpf_devmap_val));
      });
} copies SEC(".maps");

// Slots are dealt out to flows in runs. A greeting has the first slot of its flow.
enum { SLOTS_IN_RUN = 8 };

static __always_inline __u32 flow_of(const struct job* job, __u32 slot) {
  return slot / SLOTS_IN_RUN % job->flows;
}

static __always_inline struct worker* worker_of(__u32 job, __u32 worker, __u32 flow) {
  const __u32 index = (job * MAX_WORKERS + worker) * MAX_FLOWS + flow;
  return worker < MAX_WORKERS && flow < MAX_FLOWS ? bpf_map_lookup_elem(&workers, &index) : 0;
}

static __always_inline struct parent* parent_of(__u32 job) {
  return bpf_map_lookup_elem(&parents, &job);
}

static __always_inline struct counters* counters_of(__u32 job) {
  return bpf_map_lookup_elem(&counts, &job);
}

// A bit for each worker.
static __always_inline __u32 everyone(const struct job* job) {
  return ~0u >> ((MAX_WORKERS - job->workers) % MAX_WORKERS);
}

// Searches by halves: clang 14 has no instruction for this.
static __always_inline __u32 lowest_bit(__u32 bits) {
  __u32 at = 0;
#pragma clang loop unroll(full)
  for (__u32 half = MAX_WORKERS / 2; half; half /= 2) {
    const bool above = !(bits >> at & ((1u << half) - 1));
    at += above ? half : 0;
  }
  return at % MAX_WORKERS;
}

#!/bin/sh
# Two dedicated aggregators add up for four workers; all of them on this machine.
#
#     examples/dedicated_aggregators.sh
#
# On a cluster, the aggregators run on hosts of their own, and bind to an address that the workers
# reach. The secret keeps others out: workers and aggregators must have the same.
set -eu
cd "$(dirname "$0")"

export SPARSEWIRE_SECRET="$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')"

sparsewire aggregator --bind 127.0.0.1:29521 & first=$!
sparsewire aggregator --bind 127.0.0.1:29522 & second=$!
trap 'kill $first $second; wait' EXIT

# Workers that come before the aggregators listen try again.
export SPARSEWIRE_AGGREGATORS=127.0.0.1:29521,127.0.0.1:29522
export SPARSEWIRE_IFNAME=lo WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29523

for rank in 1 2 3; do
    RANK=$rank python numpy_all_reduce.py &
    workers="${workers:-} $!"
done
RANK=0 python numpy_all_reduce.py
for worker in $workers; do
    wait "$worker"
done

#!/bin/sh
# Records benchmarks/traces: which elements of the gradients of six trainings are not zero.
#
#     benchmarks/traces.sh [NAME...]       # all, or these workloads; takes some minutes
#
# Four ranks on loopback train for a few steps over gloo; everything follows from a seed.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
[ $# -gt 0 ] || set -- deeplight lstm ncf bert vgg19 resnet152

for name in "$@"; do
    rm -rf "benchmarks/traces/$name"
    sparsewire profile --trace --warmup 2 --steps 2 --every 1 --output "benchmarks/traces/$name" -- \
        torchrun --nproc-per-node 4 -m sparsewire.training.workloads "$name" \
        --backend gloo --steps 5
done
du -sh benchmarks/traces/*/

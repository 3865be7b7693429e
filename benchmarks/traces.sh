#!/bin/sh
# Records benchmarks/traces: which elements of the gradients of six trainings are not zero.
#
#     benchmarks/traces.sh [NAME...]       # all, or these workloads; takes some minutes
#
# Ranks on loopback train for a few steps over gloo, and the last two are recorded; all of it follows
# from a seed. Of VGG19, whose silent units leave masks without a pattern, and of NCF there is less.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
[ $# -gt 0 ] || set -- deeplight lstm ncf ncf-shared bert vgg19 resnet152

for name in "$@"; do
    ranks=4 steps=2
    case "$name" in vgg19 | ncf) ranks=2 steps=1 ;; ncf-shared) steps=1 ;; esac
    rm -rf "benchmarks/traces/$name"
    sparsewire profile --trace --warmup 2 --steps $steps --every 1 \
        --output "benchmarks/traces/$name" -- \
        torchrun --nproc-per-node $ranks -m sparsewire.tools.training.workloads "$name" \
        --backend gloo --steps 5
done
du -sh benchmarks/traces/*/

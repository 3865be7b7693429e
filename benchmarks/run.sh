#!/bin/sh
# Measures every table of docs/benchmarks.md; as root on Linux, about half an hour.
#
#     benchmarks/run.sh [FOLDER]
#
# The JSON records and plots go to FOLDER (default ./benchmark-results). Leave the machine alone
# meanwhile.
set -eu
out=${1:-benchmark-results}
mkdir -p "$out"

measure() {
    name=$1
    shift
    echo "== $name: sparsewire bench all_reduce $*"
    sparsewire bench all_reduce "$@" --json "$out/$name.json" --plot "$out/$name.png"
}

grid() {
    name=$1
    shift
    echo "== $name: sparsewire bench grid $*"
    sparsewire bench grid "$@" --json "$out/$name.json" --plot "$out/$name.png"
}

few="--iterations 5 --warmup 1 --against gloo"
lab4="--hosts 4 --link 1gbit --elements 25e6 $few"
lab8="--hosts 8 --link 1gbit --elements 25e6 $few"
measure colocated $lab4 --density 1,0.1,0.01 --pattern 'blocks:256|blocks:256,same'
measure dedicated $lab4 --density 1,0.1 --aggregators 4
measure eight-hosts $lab8 --density 1,0.01 --pattern 'blocks:256|blocks:256,same'
measure slow-link --hosts 4 --link 100mbit --elements 25e6 --density 0.01 $few
measure small-lab --hosts 4 --link 1gbit --bytes 4KiB,64KiB,1MiB --density 1,0.01 --against gloo
measure small-loopback --bytes 4KiB,64KiB,1MiB --density 1,0.01 --against gloo
measure loopback --elements 25e6 --density 1,0.5,0.2,0.1,0.01 --against gloo
measure scattered $lab4 --density 0.4,0.1,0.01 --pattern random
measure scattered-loopback --elements 25e6 --density 0.4,0.2,0.1,0.01 --pattern random --against gloo

# Sparse input: positions are known, and nothing is scanned.
sparse="--input sparse --pattern random"
measure sparse-loopback --elements 25e6 --density 1,0.4,0.2,0.1,0.05,0.01,0.001 $sparse $few
measure sparse-lab $lab4 --density 0.4,0.1,0.01 $sparse
measure sparse-eight-hosts $lab8 --density 0.2,0.05 $sparse
measure sparse-zipf $lab4 --density 0.1,0.01 --input sparse --pattern zipf:1.1
measure against-gloo-sparse $lab4,gloo-sparse --density 0.01 $sparse
measure against-gloo-sparse-eight $lab8,gloo-sparse --density 0.01 $sparse
for ranks in 2 4 8; do
    grid "grid-loopback-$ranks" --ranks "$ranks"
done
grid grid-lab --hosts 4 --link 1gbit --quick

sparsewire demo --output "$out/demo"

#!/bin/sh
# Measures every table of docs/benchmarks.md; as root on Linux, about ten minutes.
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
    sparsewire bench all_reduce "$@" --against gloo --json "$out/$name.json" --plot "$out/$name.png"
}

lab4="--hosts 4 --link 1gbit --elements 25e6 --iterations 5 --warmup 1"
measure colocated $lab4 --density 1,0.1,0.01 --pattern 'blocks:256|blocks:256,same'
measure dedicated $lab4 --density 1,0.1 --aggregators 4
measure eight-hosts --hosts 8 --link 1gbit --elements 25e6 --iterations 5 --warmup 1 --density 1,0.01 \
    --pattern 'blocks:256|blocks:256,same'
measure slow-link --hosts 4 --link 100mbit --elements 25e6 --density 0.01 --iterations 5 --warmup 1
measure small-lab --hosts 4 --link 1gbit --bytes 4KiB,64KiB,1MiB --density 1,0.01
measure small-loopback --bytes 4KiB,64KiB,1MiB --density 1,0.01
measure loopback --elements 25e6 --density 1,0.5,0.2,0.1,0.01
measure scattered $lab4 --density 0.4,0.1,0.01 --pattern random
measure scattered-loopback --elements 25e6 --density 0.4,0.2,0.1,0.01 --pattern random
sparsewire demo --output "$out/demo"

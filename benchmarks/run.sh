#!/bin/sh
# Measures, and makes the records and plots of README and docs; as root on Linux, in some hours,
# after `make setup`.
#
#     benchmarks/run.sh [NAME...]       # everything, or what these records hold
#     DATA=FOLDER benchmarks/run.sh     # and what LIBSVM's files are needed for: news20.bz2, a9a,
#                                       # mushrooms, phishing and w8a
#
# A record that takes longer than some minutes comes in parts, NAME+PART, of which each can be
# measured alone; NAME stands for all of them. `python benchmarks/tables.py --pending` lists what
# the pages ask for and nobody has measured yet.
#
# What the commands leave goes to benchmark-results/, the records to benchmarks/records. Then write
# the figures into the pages: python benchmarks/tables.py --write. Leave the machine alone
# meanwhile, and commit before: a record tells of which commit it is.
#
# Made by other commands: scale (scale.py).
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
out=benchmark-results
wanted=" $* "
mkdir -p "$out"
under=

is_wanted() { case "$wanted" in "  " | *" $1 "* | *" ${1%+*} "*) ;; *) return 1 ;; esac }

# program NAME SCRIPT...: runs one of this folder that adds a row, or several, to record NAME itself.
program() {
    name=$1 script=$2
    shift 2
    is_wanted "$name" || return 0
    echo "== $name: $script $*"
    python "benchmarks/$script" "$@" --record
}

# with_data NAME SCRIPT...: the same of one that reads LIBSVM's files.
with_data() {
    name=$1 script=$2
    shift 2
    is_wanted "$name" || return 0
    [ -n "${DATA:-}" ] || { echo "== $name: left out, as DATA is not set" && return 0; }
    program "$name" "$script" "$DATA" "$@"
}

# measure NAME COMMAND...: leaves NAME.json, NAME.command and, of what draws one, NAME.png. The
# command runs under $under where that is set.
measure() {
    name=$1
    shift
    is_wanted "$name" || return 0
    python -c 'import shlex, sys; print(shlex.join(sys.argv[1:]))' $under sparsewire "$@" \
        >"$out/$name.command"
    echo "== $name: $(cat "$out/$name.command")"
    case "$*" in
    demo*)
        $under sparsewire "$@" --output "$out/$name"
        cp "$out/$name/report.json" "$out/$name.json"
        ;;
    *operators* | *workload*) $under sparsewire "$@" --json "$out/$name.json" ;;
    *) $under sparsewire "$@" --json "$out/$name.json" --plot "$out/$name.png" ;;
    esac
    python benchmarks/tables.py --collect "$out/$name.json"
}

reduce="bench all_reduce --elements 25e6"
few="--iterations 5 --warmup 1 --against gloo"
lab4="$reduce --hosts 4 --link 1gbit $few"
lab8="$reduce --hosts 8 --link 1gbit $few"
# Sizes of blocks, as OmniReduce's own sweep has them, and blocks that no two ranks share.
measure block-sweep $lab4 --density 0.1,0.01 \
    --pattern 'blocks:32|blocks:64|blocks:128|blocks:256|blocks:512|blocks:1024'
measure disjoint $lab4 --density 0.1,0.01 --pattern "blocks:256|blocks:256,apart|blocks:256,same"
measure colocated $lab4 --density 1,0.1,0.01 --pattern 'blocks:256|blocks:256,same'
measure dedicated $lab4 --density 1,0.1 --aggregators 4
measure eight-hosts $lab8 --density 1,0.01 --pattern 'blocks:256|blocks:256,same'
measure window-64k $reduce --hosts 4 --link 100mbit --density 0.01 $few
under="env SPARSEWIRE_WINDOW=1048576"
measure window-1m $reduce --hosts 4 --link 100mbit --density 0.01 $few
under=
measure slow-link $reduce --hosts 4 --link 100mbit --density 0.01 $few
small="bench all_reduce --bytes 4KiB,64KiB,1MiB --density 1,0.01 --against gloo"
measure small-lab $small --hosts 4 --link 1gbit
measure small-loopback $small
measure loopback $reduce --density 1,0.5,0.2,0.1,0.01 --against gloo
measure scattered $lab4 --density 0.4,0.1,0.01 --pattern random
measure scattered-loopback $reduce --density 0.4,0.2,0.1,0.01 --pattern random --against gloo

# Several ranks a host: HOSTSxRANKS. One host has no link.
share="$reduce --density 1,0.5,0.1,0.01 $few"
measure hosts-1x4 $share --hosts 1 --ranks 4
for layout in 2x2 2x4 4x1 4x2; do
    measure "hosts-$layout" $share --hosts "${layout%x*}" --ranks "${layout#*x}" --link 1gbit
done
small4="bench all_reduce --bytes 4KiB --hosts 1 --ranks 4 --density 1 --against gloo"
measure small-1x4 $small4
# As if each rank had a processor whenever it has something to do.
under="chrt --rr 5"
measure small-1x4-realtime $small4
under=

# Hosts with several links, against the same hosts with one.
wide="$reduce --hosts 2 --link 500mbit --density 1 $few"
measure one-link $wide
measure two-links $wide --links 2

# Inside the network: an aggregator on a fast link adds up datagrams, in user space and in XDP. Then
# as if each rank had a processor whenever it has something to do.
inside="--aggregators 1 --aggregator-link 2gbit"
measure_slots() {
    for transport in udp xdp; do
        engine="$inside --transport $transport"
        slots4="$reduce --hosts 4 --link 500mbit $engine"
        measure "slots-$transport-4$1" $slots4 $few --density 1,0.1,0.01
        measure "slots-$transport-8$1" $reduce --hosts 8 --link 250mbit $engine $few --density 1,0.01
        # Without offloads in both; gloo would take minutes with losses. A way has two links: 1% of it.
        lone="$slots4 --iterations 5 --warmup 1 --density 1"
        measure "slots-$transport-loss$1" $lone --loss 0.005
        measure "slots-$transport-no-loss$1" $lone --loss 0
    done
}
measure_slots ""
under="chrt --rr 5"
measure_slots -realtime
under=
for hosts in 2 4 6 8; do
    measure "slots-scale-$hosts" $reduce --hosts "$hosts" --link 250mbit $inside --transport udp \
        $few --density 1
done
racks="$reduce --hosts 4 --link 500mbit --racks 2 --trunk 250mbit $inside --transport udp"
measure racks-flat $racks $few --density 1
measure racks-hierarchy $racks --hierarchy $few --density 1

for engine in udp xdp; do
    program slots-frozen slots_frozen.py --transport "$engine"
    program slots-kill slots_kill.py --transport "$engine" --kills 20
    program slots-attack slots_attack.py --transport "$engine" --seconds 120
    program slots-tcp slots_beside_tcp.py --transport "$engine" --congestion cubic
done
program slots-tcp slots_beside_tcp.py --transport udp --congestion bbr
# What the same sums keep that go over connections.
program slots-tcp slots_beside_tcp.py --transport tcp --congestion cubic

program slots-losses slots_losses.py
program slots-training slots_training.py --steps 200
program slots-cpu aggregator_cpu.py

# Sparse input: positions are known, and nothing is scanned.
sparse="--input sparse --pattern random"
measure sparse-loopback $reduce --density 1,0.4,0.2,0.1,0.05,0.01,0.001 $sparse $few
measure sparse-lab $lab4 --density 0.4,0.1,0.01 $sparse
sparse4="$reduce --hosts 1 --ranks 4 --density 0.1,0.05,0.01,0.001 $sparse"
measure sparse-1x4 $sparse4 $few
measure sparse-1x4-burst $sparse4 --iterations 100 --burst 10 --warmup 10
measure sparse-eight-hosts $lab8 --density 0.2,0.05 $sparse
measure sparse-zipf $lab4 --density 0.1,0.01 --input sparse --pattern zipf:1.1
measure against-gloo-sparse $lab4,gloo-sparse --density 0.01 $sparse
measure against-gloo-sparse-eight $lab8,gloo-sparse --density 0.01 $sparse
both="$sparse --through both --result sparse"
measure sparse-torch $reduce --density 0.2,0.1,0.05,0.01,0.001 $both --iterations 9 --against gloo
measure sparse-torch-eight-hosts $lab8 --density 0.05 $both
for ranks in 2 4; do
    measure "grid-loopback-$ranks" bench grid --ranks "$ranks"
done
measure grid-loopback-8 bench grid --ranks 8 --quick
measure grid-lab bench grid --hosts 4 --link 1gbit --quick

measure operators bench operators --repetitions 7
measure demo demo
measure demo-2x2 demo --hosts 2
measure demo-weights demo --what weights
# Whole trainings on loopback with several seeds, and some steps of each on the link, in one run.
for task in lstm digits; do
    measure "training+$task" bench training --task "$task" --link 100mbit --timed-steps 40 \
        --seeds 3 --method gloo,sparsewire,feedback,diana
done

# A GPT trained across slow links. DATA has tinyshakespeare.txt; the library's source is read else.
outer="bench outer --folder $out/outer${DATA:+ --text $DATA/tinyshakespeare.txt}"
measure outer $outer --method ddp-gloo:5,ddp-sparsewire:1,ddp-top-k:2,local_sgd,diloco:5,\
streaming_diloco,sparseloco:5,demo:2,muloco:1,noloco:2

# OmniReduce's workloads, each a part of its own. Gradients replayed, so that a step is communication;
# then beside a stated time of computation; then real steps. Where a hook compresses, trainings with
# several seeds tell what it costs, in the same run.
workloads="deeplight lstm ncf ncf-shared bert vgg19 resnet152"
trained="deeplight lstm ncf-shared bert"
four="gloo,sparsewire,gloo-sparse,sparsewire-sparse"
workload="bench workload --hosts 4"
for model in $workloads; do
    measure "workload-density+$model" bench workload --name "$model" --ranks 4 --mode gradients \
        --method sparsewire --steps 1
    measure "workload-density-8+$model" bench workload --name "$model" --ranks 8 --mode gradients \
        --method sparsewire --steps 1
done
for model in $workloads; do
    replayed="--name $model --mode gradients --method $four"
    case " $trained " in *" $model "*) losses="--train 100 --seeds 3" ;; *) losses= ;; esac
    measure "workload-1gbit+$model" $workload --link 1gbit $replayed,feedback --steps 7 $losses
    measure "workload-10gbit+$model" $workload --link 10gbit $replayed,feedback --steps 9
    measure "workload-1gbit-8+$model" bench workload --hosts 8 --link 1gbit $replayed --steps 7
    measure "workload-1gbit-dedicated+$model" $workload --link 1gbit --aggregators 4 \
        --name "$model" --mode gradients --method gloo,sparsewire --steps 7
    for link in 1gbit 10gbit; do
        measure "workload-$link-100ms+$model" $workload --link $link $replayed --compute 100 --steps 7
    done
    real="--name $model --method $four,feedback"
    measure "workload-training-1gbit+$model" $workload --link 1gbit $real --steps 5
    measure "workload-training-10gbit+$model" $workload --link 10gbit $real --steps 7
    measure "workload-training-100mbit+$model" $workload --link 100mbit --name "$model" --steps 3
done
program order-of-sums order_of_sums.py
program hook-cost hook_cost.py --turns 21
program advise advise_check.py --cases workloads --cases held-out --cases no-gain

# Ranks that stop, strangers, memory and loads.
program freeze ranks_frozen.py --freezes 40 --seed 9
program kill ranks_killed.py --kills 50
program attack aggregator_attacked.py --seconds 60
program memory memory_beside.py
program balance owners_load.py
program precision precision_bytes.py
program entropy entropy.py
program outer_sums outer_sums.py lab
program outer_sums outer_sums.py formula
program outer_step outer_step.py
program outer_kills outer_kills.py
program outer_check outer_check.py "$out/outer"
program weights weights_delta.py

# On LIBSVM's data.
with_data optimize optimize_sets.py
with_data choose choices.py
if is_wanted proofs && [ -n "${DATA:-}" ]; then
    benchmarks/proofs.sh "$DATA" "$out"
    cp "$out/proofs.json" benchmarks/records/
    for plot in "$out"/proofs-*.png; do cp "$plot" docs/; done
fi

# The plots that the pages show.
show() { if [ -e "$out/$1" ]; then cp "$out/$1" "docs/$2"; fi; }
show colocated.png density.png
show demo/loss.png demo.png
show demo-weights/reward.png rl.png
show training+lstm.png training.png
show outer.png learn/low-communication.png

#!/bin/sh
# Runs all acceptance checks of compressed optimisation in full, on one core.
#
#     benchmarks/proofs.sh DATA [FOLDER [TESTS...]]
#
# DATA has LIBSVM's files mushrooms, a9a, phishing and w8a. Each measurement, the records and the
# plots of docs/proofs.md go to FOLDER (default ./benchmark-results). Fails where a check does. With
# TESTS, files or folders, only these run: tests/methods/test_local_*.py make proofs-local.json. To
# show them: cp FOLDER/proofs*.json benchmarks/records; python benchmarks/tables.py --write
set -eu
data=$(cd "$1" && pwd)
out=${2:-benchmark-results}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- tests/compress tests/methods tests/problems
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"

rm -f "$out/proofs.jsonl"
export SPARSEWIRE_FULL_CHECKS=1 SPARSEWIRE_DATA="$data" SPARSEWIRE_RECORD="$out/proofs.jsonl"
# A product of matrices in many threads gains nothing at this size.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
verdict=0
python -m pytest --timeout 1800 "$@" || verdict=$?
python benchmarks/proofs.py "$out"
exit "$verdict"

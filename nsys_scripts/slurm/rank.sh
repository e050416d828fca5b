#!/usr/bin/env bash
# Run the program of one rank; where profile.sbatch counts this rank, under ncu.
#
# usage: rank.sh COMMAND…
#
# ncu counts kernels that compute, in one pass each: a collective that it replayed would wait for the other ranks for ever.
# exit: that of the program
source "$(dirname "$0")/common.sh"
if [[ ${1:-} == --help || $# == 0 ]]; then usage; fi

if [[ -z ${LEDGER_NCU_RANK:-} || ${RANK:-} != "$LEDGER_NCU_RANK" ]]; then exec "$@"; fi
out=$LEDGER_RUN/nodes/ncu
said=$(ours harness.profile.argv ncu --window all --columns duration_ns,dram_read_bytes,dram_write_bytes --cache-control none --launches "$LEDGER_LAUNCHES")
mapfile -t options <<<"$said"
"$HERE/ncu_capture.sh" --exactly "${options[@]}" --kernel-name 'regex:^(?!nccl)' --out "$out" -- "$@"
"$HERE/export_csv.sh" --only ncu "$out"
cp "$out"/captures/ncu* "$LEDGER_RUN/captures/"

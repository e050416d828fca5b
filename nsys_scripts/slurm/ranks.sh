#!/usr/bin/env bash
# Start the ranks of one node with RANK, LOCAL_RANK and WORLD_SIZE, as torch.distributed reads them; end all if one fails.
#
# usage: ranks.sh COMMAND…
#
# exit: the exit code of the first rank that failed, else 0
source "$(dirname "$0")/common.sh"
if [[ ${1:-} == --help || $# == 0 ]]; then usage; fi

export WORLD_SIZE=$((SLURM_NNODES * LEDGER_RANKS))
code=0 pids=()
for ((at = 0; at < LEDGER_RANKS; at++)); do
  LOCAL_RANK=$at RANK=$((SLURM_NODEID * LEDGER_RANKS + at)) "$@" &
  pids+=($!)
done
while ((code == 0)) && [[ -n $(jobs -pr) ]]; do wait -n || code=$?; done
# A rank that ends between two looks leaves no code, and bash's `wait -n` then says 127. Its own `wait` knows the code.
if ((code == 0 || code == 127)) && [[ -z $(jobs -pr) ]]; then
  code=0
  for pid in "${pids[@]}"; do wait "$pid" || { code=$? && break; }; done
fi
if ((code)); then
  # shellcheck disable=SC2046  # several numbers
  kill $(jobs -p) 2>/dev/null || true
fi
exit "$code"

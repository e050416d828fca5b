#!/usr/bin/env bash
# Shared by the scripts of this folder. Source it, do not run it.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# Read the command line of a batch script. What node.sh needs is exported as LEDGER_*.
# shellcheck disable=SC2034  # the scripts read them
options_of() { # ARGUMENT…
  local run=runs/${SLURM_JOB_ID:-job}-slurm
  dry='' launch=torchrun ranks=${SLURM_GPUS_ON_NODE:-1} ncu_rank='' srun=() nodes=${SLURM_NNODES:-1}
  export LEDGER_CONTAINER='' LEDGER_MODULES='' LEDGER_LAUNCHES=200 LEDGER_LIMIT=1800 LEDGER_WINDOW=all
  while (($#)) && [[ $1 != -- ]]; do
    case $1 in
    -h | --help) usage ;;
    -n) dry=yes ;;
    --run) value "$1" $# && run=$2 && shift ;;
    --launch)
      value "$1" $# && launch=$2 && shift
      [[ $launch =~ ^(torchrun|srun|mpirun)$ ]] || bad_usage "--launch is torchrun, srun or mpirun, not $launch."
      ;;
    --ranks) value "$1" $# && ranks=$2 && shift ;;
    --container) value "$1" $# && LEDGER_CONTAINER=$2 && shift ;;
    --modules) value "$1" $# && LEDGER_MODULES=$2 && shift ;;
    --srun) value "$1" $# && read -ra srun <<<"$2" && shift ;;
    --ncu-rank) value "$1" $# && ncu_rank=$2 && shift ;;
    --launches) value "$1" $# && LEDGER_LAUNCHES=$2 && shift ;;
    --limit) value "$1" $# && LEDGER_LIMIT=$2 && shift ;;
    --window) value "$1" $# && LEDGER_WINDOW=$2 && shift ;;
    *) bad_usage "Unknown argument $1." ;;
    esac
    shift
  done
  program=("${@:2}")
  ((${#program[@]})) || bad_usage "No command to capture after --."
  [[ $ranks =~ ^[1-9][0-9]*$ ]] || bad_usage "--ranks is a number of ranks, not $ranks."
  [[ $run == /* ]] || run=$PWD/$run
  export LEDGER_RUN=$run LEDGER_LAUNCH=$launch LEDGER_RANKS=$ranks LEDGER_NCU_RANK='' PYTHON
  MASTER_ADDR=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-$(hostname)}" 2>/dev/null | head -n 1 || true)
  export MASTER_ADDR=${LEDGER_MASTER:-${MASTER_ADDR:-127.0.0.1}}
  export MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 20000))}
}

# Print the names of the captures that a run should leave: node0 …, or rank0 … where mpirun starts each rank.
expected() {
  local at
  if [[ $launch == mpirun ]]; then
    for ((at = 0; at < nodes * ranks; at++)); do echo "rank$at"; done
  else
    for ((at = 0; at < nodes; at++)); do echo "node$at"; done
  fi
}

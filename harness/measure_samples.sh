#!/usr/bin/env bash
# Measure every figure of harness/README.md on two GPUs, about 10 minutes. A step that fails is named, and the others go on.
# After what needs both GPUs, each has a lane with half of the cores. There nsys samples only the lane's own GPU.
#
# usage: harness/measure_samples.sh OUT      needs nsys, ncu, nvcc, PyTorch, JAX and transformers, and nothing else on the GPUs
#
# OUT/log.txt has the exit code and the seconds of each step, which makes the table of what a profile takes (stages: RUN/raw/stages.json).
# OUT/known/tables, OUT/links/tables and OUT/cost are those of reports/known-bytes, OUT/steps.csv its known_steps.csv.
# OUT/compiled, OUT/jax and OUT/ddp are the runs of the three reports with lanes.
# exit: 0 all steps ran, 1 one failed, 2 usage
set -uo pipefail
help() { sed -n '2,11s/^# \?//p' "$0"; }
[[ ${1:-} != @(-h|--help) ]] || { help && exit 0; }
[[ $# == 1 && $1 != -* ]] || { help >&2 && exit 2; }
cd "$(dirname "$0")/.." && out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} NCCL_NVLS_ENABLE=0 # with NVLink multicast, a GPU sends less than the tensor has
export XLA_FLAGS="--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false" # tuned under ncu, JAX takes minutes
form=tests/samples/gpt_steps.py cores=$(($(nproc) / 2))
step() { # NAME COMMAND…
  local from=$SECONDS code=0
  "${@:2}" >"$out/$1.log" 2>&1 </dev/null || code=$?
  echo "$1: exit code $code, $((SECONDS - from)) s" | tee -a "$out/log.txt"
}
profile() { # NAME OPTIONS… -- COMMAND…
  step "profile_$1" nsys_scripts/profile.sh --run "$out/$1" --window profiler "${@:2}"
}
# shellcheck disable=SC2329
steps() { # NAME: ncu's bytes of a step, once the profile is there
  local waited=0
  while [[ ! -e $out/$1/report.json ]] && ((++waited < 300)); do sleep 1; done
  python3 -m harness.known_steps "$out/$1" 20 -- python3 "$form" "$1" >>"$out/steps.csv"
}
job() {
  case $1 in
  known) step known python3 -m harness.known_bytes --out "$out/known" ;;
  cost) step cost python3 -m harness.known_bytes --out "$out/cost" --cost 20 ;;
  jax | compiled) profile "$1" -- python3 "$form" "$1" 300 ;;
  cupy | fp8 | graph) profile "$1" --no-counters -- python3 tests/samples/unlike_steps.py "$1" ;;
  gpt2) profile gpt2 --no-counters -- python3 "$form" gpt2 60 ;;
  steps_*) step "$1" steps "${1#steps_}" ;;
  reuse) profile reuse -- "$out/known/raw/known_bytes" reuse 1500 ;;
  esac
}
lane() { # GPU FIRST_JOB, then those of the queue
  export CUDA_VISIBLE_DEVICES=$1 TMPDIR=$out/tmp$1 # ncu's lock lies in TMPDIR
  mkdir -p "$TMPDIR"
  taskset -pc "$(($1 * cores))-$((($1 + 1) * cores - 1))" "$BASHPID" >/dev/null
  local next=$2
  while [[ -n $next ]]; do
    job "$next"
    next=$(flock "$out" sed -i -e "1w $out/next$1" -e 1d "$out/queue" && cat "$out/next$1")
  done
}

step roofs nsys_scripts/profile.sh --roofs
profile ddp -- python3 -m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node 2 "$form" ddp 80
profile links --no-counters -- python3 -m harness.known_links
echo program,metric,sampled_bytes,error_bytes,kernels_bytes,range_bytes >"$out/steps.csv"
printf '%s\n' jax compiled gpt2 cupy fp8 graph steps_jax steps_compiled steps_gpt2 reuse >"$out/queue"
lane 0 known &
lane 1 cost &
wait
! grep -qv 'exit code 0,' "$out/log.txt"

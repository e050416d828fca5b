#!/usr/bin/env bash
# Measure every figure of harness/README.md on two GPUs. A step that fails is named, and the others go on.
#
# usage: harness/measure_samples.sh OUT      needs nsys, ncu, nvcc, PyTorch, JAX and transformers, and nothing else on the GPUs
#
# OUT/log.txt has the exit code and the seconds of each step, which makes the table of what a profile takes (stages: RUN/raw/stages.json).
# OUT/known/tables, OUT/links/tables, OUT/reuse/tables and OUT/cost are those of reports/h100-known-bytes, OUT/steps.csv its known_steps.csv.
# OUT/compiled, OUT/jax and OUT/ddp are the runs of the three reports with lanes.
# exit: 0 all steps ran, 1 one failed, 2 usage
set -uo pipefail
help() { sed -n '2,10s/^# \?//p' "$0"; }
[[ ${1:-} != @(-h|--help) ]] || { help && exit 0; }
[[ $# == 1 && $1 != -* ]] || { help >&2 && exit 2; }
cd "$(dirname "$0")/.." && out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
form=tests/samples/gpt_steps.py worst=0
step() { # NAME COMMAND…
  local from=$SECONDS code=0
  "${@:2}" >"$out/$1.log" 2>&1 || code=$?
  echo "$1: exit code $code, $((SECONDS - from)) s" | tee -a "$out/log.txt"
  ((code == 0)) || worst=1
}
profile() { # NAME OPTIONS… -- COMMAND…
  step "profile_$1" nsys_scripts/profile.sh --run "$out/$1" "${@:2}"
}
# shellcheck disable=SC2329
steps() { # NAME
  python3 -m harness.known_steps "$out/$1" 20 -- python3 "$form" "$1" >>"$out/steps.csv"
}

step roofs nsys_scripts/profile.sh --roofs
step known python3 -m harness.known_bytes --out "$out/known"
step cost python3 -m harness.known_bytes --out "$out/cost" --cost 20
profile compiled -- python3 "$form" compiled 300
profile jax -- python3 "$form" jax 300
profile ddp -- python3 -m torch.distributed.run --standalone --nproc-per-node 2 "$form" ddp 80
profile reuse --window profiler -- "$out/known/raw/known_bytes" reuse 1500
profile links --no-counters -- python3 -m harness.known_links
profile gpt2 --no-counters -- python3 "$form" gpt2 60
echo program,metric,sampled_bytes,error_bytes,kernels_bytes,range_bytes >"$out/steps.csv"
for name in compiled jax gpt2; do step "steps_$name" steps "$name"; done
exit "$worst"

#!/usr/bin/env bash
# Hold planned captures against whole ones, on this GPU: of GPT-2 and of a user's program (qwen_like.py).
#
# usage: proof.sh DIR [SECONDS]
#
#   DIR      folder for the runs: DIR/{qwen,gpt2} planned, DIR/{qwen,gpt2}-full all launches in one pass. If there is time,
#            DIR/qwen-deep has one layer of the steps with the metrics of the plan: the cost of a whole capture a launch
#   SECONDS  end after so many; what there is then is kept (default: 330)
#
# exit: 0 whatever became of each step; DIR/steps.txt has their seconds and exit codes
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit
out=$(mkdir -p "$1" && cd "$1" && pwd) most=${2:-330}
python=${PYTHON:-python3}
one_pass=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
qwen=("$python" tests/gpu/counting/qwen_like.py)
gpt2=("$python" -m harness.run --mode capture)
SECONDS=0

try() { # NAME LIMIT COMMAND…: with a time limit, which is never beyond the end
  local name=$1 limit=$2 began=$SECONDS code=0
  shift 2
  if ((SECONDS + limit > most)); then limit=$((most - SECONDS)); fi
  if ((limit < 5)); then echo "$name: no time left" | tee -a "$out/steps.txt" && return 1; fi
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 || code=$?
  echo "$name: $((SECONDS - began)) s, exit $code, at $SECONDS s" | tee -a "$out/steps.txt"
  return "$code"
}

export_soon() { (nsys_scripts/export_csv.sh "$1" >"$1/export.log" 2>&1) & }

# the kernels of ours are compiled while others are captured
(timeout 150 "$python" -c "from kernels.build import extension; extension('softmax')" >"$out/warm.log" 2>&1) &
warm=$!

filters=(ncu --nvtx --profile-from-start off --clock-control none --metrics gpu__time_duration.sum --kernel-name-base mangled --csv --page raw)
try filters-both 40 "${filters[@]}" --nvtx-include '[step/h.0/w\[0\]\*]' --nvtx-include '[step/h.2/mlp]' --kernel-id ':::^(2|7)$' \
  "$python" tests/gpu/counting/filters.py
try filters-numbers 40 "${filters[@]}" --kernel-id ':::^(1|5)$' "$python" tests/gpu/counting/filters.py
both=$(grep -c '^"[0-9]' "$out/filters-both.log") numbers=$(grep -c '^"[0-9]' "$out/filters-numbers.log")
echo "filters: $both launches by ranges and numbers (4 expected), $numbers by numbers alone (6 expected)" | tee -a "$out/steps.txt"

planned() { # NAME BUDGET COMMAND…
  local run=$out/$1 budget=$2
  shift 2
  try "$(basename "$run")-nsys" 60 nsys_scripts/nsys_capture.sh --out "$run" -- "$@" || return 0
  try "$(basename "$run")-export" 40 nsys_scripts/export_csv.sh "$run"
  try "$(basename "$run")-plan" 20 "$python" -m analysis.counting "$run" --budget "$budget"
  if ((both == 0)); then # ranges cannot be told: numbers alone
    try "$(basename "$run")-plan-again" 20 "$python" -c "
import sys
from analysis import counting
from analysis.planning import select
select._filters = lambda launches, ranges: {}
sys.exit(counting.main([sys.argv[1], '--budget', sys.argv[2]]))" "$run" "$budget"
  fi
  try "$(basename "$run")-planned" 100 nsys_scripts/ncu_capture.sh --plan "$run/raw/count_plan.json" --out "$run" -- "$@" &&
    "$python" -m analysis.counting --learn "$run"
  export_soon "$run"
}

full() { # NAME LIMIT METRICS COMMAND…
  local run=$out/$1 limit=$2 metrics=$3
  shift 3
  try "$(basename "$run")" "$limit" nsys_scripts/ncu_capture.sh ${metrics:+--metrics "$metrics"} --out "$run" -- "$@"
  export_soon "$run"
}

planned qwen 60 "${qwen[@]}"
full qwen-full 90 "$one_pass" "${qwen[@]}"
wait "$warm"
planned gpt2 45 "${gpt2[@]}" --out "$out/gpt2/captures"
full gpt2-full 80 "$one_pass" "${gpt2[@]}" --out "$out/gpt2-full/captures"
if ((most - SECONDS > 30)); then
  try qwen-deep 90 nsys_scripts/ncu_capture.sh --include layers.0/ --out "$out/qwen-deep" -- "${qwen[@]}" && export_soon "$out/qwen-deep"
fi
wait

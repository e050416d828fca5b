#!/usr/bin/env bash
# Profile the Qwen-like program as a user does, then count all of its launches with the same metrics.
#
# usage: whole.sh DIR [SECONDS] [RANGE]
#
#   DIR      folder for the runs: DIR/qwen the profile, DIR/qwen-whole the launches from the beginning, as many as there is time for
#   SECONDS  end after so many (default: 330)
#   RANGE    no profile, only the launches inside this range of one step, into DIR/qwen-whole-RANGE: decode
#
# A launch takes a third of a second, so all 1,265 take seven minutes: the prefill's 421 are the first, RANGE takes the others.
# exit: 0 whatever became of each step; DIR/steps.txt has their seconds and exit codes
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit
out=$(mkdir -p "$1" && cd "$1" && pwd) most=${2:-330} range=${3:-}
export PYTHON=${PYTHON:-python3}
STARTUP_SECONDS=20 EXPORT_SECONDS=8 ONE_STEP=422
qwen=("$PYTHON" tests/gpu/counting/qwen_like.py)
SECONDS=0

try() { # NAME LIMIT COMMAND…
  local name=$1 limit=$2 began=$EPOCHREALTIME code=0
  shift 2
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null || code=$?
  echo "$name: $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }") s, exit $code, at $SECONDS s" | tee -a "$out/steps.txt"
  return "$code"
}

whole() { # NAME LAUNCHES OPTION…
  local run=$out/$1 launches=$2
  shift 2
  try "$(basename "$run")" $((most - SECONDS + 10)) nsys_scripts/ncu_capture.sh --launches "$launches" "$@" --out "$run" -- "${qwen[@]}"
  try "$(basename "$run")-export" 30 nsys_scripts/export_csv.sh "$run"
}

if [[ -n $range ]]; then
  whole "qwen-whole-$range" "$ONE_STEP" --include "$range/"
  exit 0
fi
try roofs 75 nsys_scripts/profile.sh --run "$out/roofs" --roofs
try qwen 150 make profile VENV= PYTHON="$PYTHON" RUN="$out/qwen" CMD="${qwen[*]}"
each=$("$PYTHON" - "$out/qwen" 2>"$out/each.log" <<'PYTHON' || echo 0.34
import json, sys
from pathlib import Path

run = Path(sys.argv[1])
plan, ncu = (json.loads((run / name).read_text()) for name in ("raw/count_plan.json", "captures/ncu.json"))
print(max(0.2, (ncu["seconds"] - plan["startup_s"]) / plan["replayed"]))
PYTHON
)
left=$((most - SECONDS - STARTUP_SECONDS - EXPORT_SECONDS))
launches=$(awk "BEGIN { printf \"%d\", 0.95 * $left / $each }")
echo "$each s a launch in the planned capture, $left s left: $launches launches" | tee -a "$out/steps.txt"
if ((launches > 0)); then whole qwen-whole "$launches"; fi

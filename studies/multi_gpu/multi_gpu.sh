#!/usr/bin/env bash
# Measure GPT-2 on two GPUs of one host: links, logits, times, the trap, and three timelines; eight minutes.
#
# usage: multi_gpu.sh [-n] [--out DIR] [--gpus N] [--seconds S] [--steps LIST]
#
#   -n            print the exact commands, run nothing
#   --out DIR     run folder (default: runs/<time>-multi-gpu); what is there is added to
#   --gpus N      GPUs (default 2)
#   --seconds S   that the samples of one workload may take (default 1)
#   --steps LIST  comma-separated; default: all:
#                   links      bandwidth over size: DIR/captures/ceilings.json
#                   predicted  what the links of this machine predict: DIR/predictions*.csv, before anything else is timed
#                   check      logits and greedy tokens against one process, with NCCL
#                   times      every predicted step on one GPU, then data parallel and tensor parallel
#                   trap       the claims: one process that allocates and copies on every call
#                   timelines  nsys of the trap and its cure (DIR), of data parallel (DIR/dp), of tensor parallel (DIR/tp)
#                   pack       the exports, compressed; fails above 3 MB in all
#
# NVLink multicast stays off: NCCL_NVLS_ENABLE=0. No clock is touched. A step that fails is named, and the others go on.
# Without a GPU all but links, predictions and timelines run on CPU processes with gloo, on a small model.
# exit: 0 all done, 1 a step failed, 2 usage
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-multi-gpu gpus=2 seconds=1 steps=links,predicted,check,times,trap,timelines,pack
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=yes && shift ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  --gpus) value "$1" $# && gpus=$2 && shift 2 ;;
  --seconds) value "$1" $# && seconds=$2 && shift 2 ;;
  --steps) value "$1" $# && steps=$2 && shift 2 ;;
  *) bad_usage "Unknown argument $1." ;;
  esac
done
[[ $gpus =~ ^[1-9][0-9]*$ ]] || bad_usage "--gpus takes a whole number from 1 on, not '$gpus'."
for one in ${steps//,/ }; do
  [[ $one =~ ^(links|predicted|check|times|trap|timelines|pack)$ ]] || bad_usage "Unknown step '$one'."
done
export NCCL_NVLS_ENABLE=0
cd "$ROOT"
failed='' options=()
if [[ -z $dry ]] && ! find_gpu >/dev/null; then
  options=(--device cpu --config "n_layer=2,n_embd=96,n_head=6,vocab_size=211,n_positions=64" --batches 1 4 --tokens 32)
fi

wanted() { [[ ,$steps, == *,$1,* ]]; }
try() { step "$@" || failed+=" ${1// /-}"; }
measure() { # TITLE STEP OPTIONS…
  try "$1" "$PYTHON" -m studies.multi_gpu.measure "$2" --out "$out" "${@:3}" ${options[@]+"${options[@]}"}
}
timeline() { # MODE FOLDER OPTIONS…
  try "timeline of $1" "$HERE/nsys_capture.sh" --out "$2" -- "$PYTHON" -m studies.multi_gpu.measure capture --mode "$1" \
    --processes "$gpus" --batches 8 --tokens 1024 --out "$out"
  try "export of $1" "$HERE/export_csv.sh" --only nsys "$2"
}

if wanted links && [[ -z ${options[*]-} ]]; then try "links" "$PYTHON" -m harness.links --ranks "$gpus" --out "$out/captures"; fi
if wanted predicted && [[ -z ${options[*]-} ]]; then
  for table in "" _trap; do
    # shellcheck disable=SC2016 # the inner shell expands it
    try "predictions$table" bash -c '"$@" >"$0"' "$out/predictions$table.csv" "$PYTHON" -m studies.multi_gpu.predict ${table:+--trap} \
      --ceilings "$out/captures/ceilings.json"
  done
fi
if wanted check; then measure "logits and tokens" check --processes "$gpus"; fi
if wanted times; then
  measure "times of one rank" times --modes one --processes 1 --seconds "$seconds"
  measure "times of $gpus ranks" times --modes dp tp --processes "$gpus" --seconds "$seconds"
fi
if wanted trap; then measure "the trap" trap --processes "$gpus" --batches 8 --tokens 1024; fi
if wanted timelines && [[ -z ${options[*]-} ]]; then
  timeline trap "$out"
  for mode in dp tp; do timeline "$mode" "$out/$mode"; done
fi
if wanted pack && [[ -z ${options[*]-} ]]; then
  try "packing" find "$out" -path '*/captures/nsys/*.csv' -exec xz -9e -T0 -f '{}' +
  # shellcheck disable=SC2016 # the inner shell expands it
  try "3 MB at most" bash -c '(($(find "$0" -path "*/captures/*" -type f -exec cat "{}" + | wc -c) <= 3000000))' "$out"
fi
[[ -z $failed ]] || die 1 "These steps failed:$failed."

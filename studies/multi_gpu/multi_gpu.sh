#!/usr/bin/env bash
# Measure GPT-2 on two GPUs of one host: links, logits, times, the trap, and three timelines. It takes eight minutes.
#
# usage: multi_gpu.sh [-n] [--out DIR] [--gpus N] [--seconds S] [--steps LIST]
#
#   -n            print the exact commands, run nothing
#   --out DIR     run folder (default: runs/<time>-multi-gpu); new results are added to those that it holds
#   --gpus N      number of GPUs (default 2)
#   --seconds S   seconds for the samples of one workload (default 1)
#   --steps LIST  comma-separated steps (default: all):
#                   links      measure bandwidth over size: DIR/captures/ceilings.json
#                   predicted  predict from these links, before any step is timed: DIR/predictions*.csv
#                   check      compare logits and greedy tokens with those of one process
#                   times      time every predicted step on one GPU, data parallel and tensor parallel
#                   trap       time the claims: one process that allocates and copies on every call
#                   splits     time single kernels split over the GPUs, and our all-reduce beside NCCL's
#                   timelines  capture the trap and resident slices (DIR), data parallel (DIR/dp), tensor parallel (DIR/tp)
#                   pack       compress the exports; fails above 3 MB
#
# The script turns NVLink multicast off (NCCL_NVLS_ENABLE=0) and changes no GPU clock. If a step fails, the script names it
# and runs the others. Without a GPU, it runs check, times and trap for a small model, on CPU processes with gloo.
# exit: 0 all done, 1 a step failed, 2 usage
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-multi-gpu gpus=2 seconds=1 steps=links,predicted,check,times,trap,splits,timelines,pack
while (($#)); do
  case $1 in
  -h | --help) usage ;;
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
  [[ $one =~ ^(links|predicted|check|times|trap|splits|timelines|pack)$ ]] || bad_usage "Unknown step '$one'."
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
    --processes "$gpus" --batches 8 --tokens 1024 --out "$2"
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
if wanted splits && [[ -z ${options[*]-} ]]; then
  try "splits" "$PYTHON" -m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node "$gpus" \
    -m studies.multi_gpu.measure_splits --out "$out"
fi
if wanted timelines && [[ -z ${options[*]-} ]]; then
  # Under nsys 2025.3.1 the trap ends with "unspecified launch failure" where cudaFree returns a large segment that both GPUs use.
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True timeline trap "$out"
  for mode in dp tp; do timeline "$mode" "$out/$mode"; done
fi
if wanted pack && [[ -z ${options[*]-} ]]; then
  try "packing" find "$out" -path '*/captures/nsys/*.csv' -exec xz -9e -T0 -f '{}' +
  # shellcheck disable=SC2016 # the inner shell expands it
  try "3 MB at most" bash -c '(($(find "$0" -path "*/captures/*" -type f -exec cat "{}" + | wc -c) <= 3000000))' "$out"
fi
[[ -z $failed ]] || die 1 "These steps failed:$failed."

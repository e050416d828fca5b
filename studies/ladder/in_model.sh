#!/usr/bin/env bash
# Capture GPT-2 with our ops under nsys: ladder_times.csv takes its times in the model from this run.
#
# usage: in_model.sh [-n] [--ops fused|best] [--dtype float32|bfloat16] [--out DIR]
#
#   -n           print the exact commands, run nothing
#   --ops        fused: every op that fuses (default); best: also our products and attention
#   --dtype      of the model (default: float32)
#   --out DIR    run folder (default: runs/<time>-gpt2-<ops>-<dtype>)
#
# `make report RUN=DIR` reports on it. To publish it, copy captures/ and tables/layers.csv to reports/<gpu>-gpt2-<ops>-<dtype>,
# and run `make readme`. The ladder takes times in the model from every report beside it whose folder begins with <gpu>-gpt2.
# The program takes about as long as a capture of GPT-2: 16 s on an H200 once its kernels are in build/.
# exit: 0 done, 1 a step failed, 2 usage
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' ops=fused dtype=float32 out=''
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=yes && shift ;;
  --ops) value "$1" $# && ops=$2 && shift 2 ;;
  --dtype) value "$1" $# && dtype=$2 && shift 2 ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  *) bad_usage "Unknown argument $1." ;;
  esac
done
[[ $dtype == float32 || $dtype == bfloat16 ]] || bad_usage "--dtype takes float32 or bfloat16, not '$dtype'."
[[ $ops == fused || $ops == best ]] || bad_usage "--ops takes fused or best, not '$ops'."
out=${out:-runs/$(date -u +%Y%m%dT%H%M%SZ)-gpt2-$ops-$dtype}
cd "$ROOT"
if [[ -z $dry ]] && ! gpu=$(find_gpu); then die 2 "This records on an NVIDIA GPU, and there is none here: $gpu."; fi
step "timeline" "$HERE/nsys_capture.sh" --out "$out" -- \
  "$PYTHON" -m harness.run --mode capture --ops "$ops" --dtype "$dtype" --out "$out/captures"
step "export" "$HERE/export_csv.sh" --only nsys "$out"

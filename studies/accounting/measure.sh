#!/usr/bin/env bash
# Compare the accounting with this GPU: parameters, memory and times, and with ncu FLOPs and DRAM bytes.
#
# usage: measure.sh [-n] [--out DIR] [--samples N] [--count LIST]
#
#   -n           print the exact commands, run nothing
#   --out DIR    run folder (default: runs/<time>-accounting)
#   --samples N  samples of each time (default 20)
#   --count LIST only count these steps with ncu, such as decode_b1_ctx1023,train_b1_t1024. These two are about 400 launches
#                of three passes, which take 50 to 60 s on an H200 with start-up
#
# Without a GPU, it measures small steps, and only their parameters and times.
# exit: 0 done, 1 a step failed, 2 usage
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-accounting samples=20 count=''
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  --samples) value "$1" $# && samples=$2 && shift 2 ;;
  --count) value "$1" $# && count=$2 && shift 2 ;;
  *) bad_usage "Unknown argument $1." ;;
  esac
done
IFS=, read -ra steps <<<"$count"
cd "$ROOT"
[[ -n $count ]] || step "memory and times" "$PYTHON" -m studies.accounting.measure --out "$out" --samples "$samples"
if [[ -n $dry ]] || find_gpu >/dev/null; then
  step "counters under ncu" "$HERE/ncu_capture.sh" --columns duration_ns,dram_read_bytes,dram_write_bytes,flops_fp32,flops_tensor_bf16 \
    --out "$out" -- "$PYTHON" -m studies.accounting.measure --capture "${steps[@]}"
  step "export" "$HERE/export_csv.sh" --only ncu "$out"
fi

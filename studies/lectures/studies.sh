#!/usr/bin/env bash
# Measure the lecture's studies, and count with ncu the tricks whose claims are about counters.
#
# usage: studies.sh [-n] [--out DIR] [STUDY…]
#
#   -n           print the exact commands, run nothing
#   --out DIR    run folder (default: runs/<time>-lectures); a study that it already holds is measured again
#   STUDY…       only these: profiles matmul mlp tricks waves latencies units roofs
#
# Without a GPU, it runs those parts of profiles, mlp and units that a CPU can.
# exit: 0 done, 1 a step failed, 2 usage
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-lectures studies=()
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  -*) bad_usage "Unknown argument $1." ;;
  *) studies+=("$1") && shift ;;
  esac
done
cd "$ROOT"
step "studies" "$PYTHON" -m studies.lectures.measure ${studies[@]+"${studies[@]}"} --out "$out"
if { [[ -n $dry ]] || find_gpu >/dev/null; } && [[ ${#studies[@]} == 0 || " ${studies[*]} " == *" tricks "* ]]; then
  step "counters under ncu" "$HERE/ncu_capture.sh" --columns duration_ns,dram_read_bytes,dram_write_bytes,sectors_per_request_load,l2_read_bytes,global_load_inst \
    --out "$out" -- "$PYTHON" -m studies.lectures.measure --capture
  step "export" "$HERE/export_csv.sh" --only ncu "$out"
fi

#!/usr/bin/env bash
# Profile GPT-2 from the model to the report: the driver behind `make profile`.
#
# usage: profile.sh [-n] [--deep] [--include RANGE]… [--only-selftest] [-- HARNESS ARGUMENTS]
#
#   -n               print the exact commands, run nothing
#   --deep           counters of every kernel (minutes), not of one prefill, one decode step and one fused block
#   --include RANGE  counters of this NVTX range instead of the default ones (repeatable, as ncu writes it: gpt2/)
#   --only-selftest  only the known-bytes copy and the known-FLOP GEMM under ncu; fails unless the report trusts them
#   -- ARGUMENTS     for the harness, for example -- --weights gpt2
#
# With an NVIDIA GPU: bare timing, nsys, ncu, export, report, in a new folder under runs/. Timing that fails, and a tool that
# is missing, denied or fails, lower the evidence tier, are named in the report, and do not end the run. Without a GPU: the harness on the
# CPU, then the report of the first GPU's run in reports/published.toml.
# exit: 0 done, 1 a step failed, 2 usage or no GPU for the self-test
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' deep='' includes=() selftest=''
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=-n && shift ;;
  --deep) deep=--deep && shift ;;
  --include) value "$1" $# && includes+=(--include "$2") && shift 2 ;;
  --only-selftest) selftest=yes && shift ;;
  --) shift && break ;;
  *) bad_usage "Unknown argument $1: the harness's own follow after --." ;;
  esac
done
cd "$ROOT"
stamp=$(date -u +%Y%m%dT%H%M%SZ)

report() { step "$1" "$PYTHON" analysis/report.py "${@:2}"; }

if ! gpu=$(find_gpu); then
  if [[ -n $selftest ]]; then die 2 "The self-test needs an NVIDIA GPU with ncu, and there is none here ($gpu)."; fi
  if [[ -z ${ANNOUNCED:-} ]]; then echo "No NVIDIA GPU found: $gpu."; fi
  run=runs/$stamp-cpu-gpt2 committed=$("$PYTHON" -m analysis.published overview --first) || exit
  step "1/3 layer times of GPT-2 on this CPU" "$PYTHON" -m harness.run --mode cpu --out "$run/captures" "$@"
  report "2/3 report of this CPU run (no GPU: layer times only)" "$run/captures" --out "$run"
  if [[ -z $dry && ! -d $committed/captures ]]; then die 1 "$committed/captures is missing from this checkout, so there is no GPU capture to report on."; fi
  report "3/3 full report of the committed capture" "$committed/captures" --out "runs/$stamp-$(basename "$committed")"
  exit
fi

slug=$(tr '[:upper:] ' '[:lower:]-' <<<"${gpu%,*}" | sed 's/^nvidia-//; s/[^a-z0-9.-]//g')
run=runs/$stamp-$slug-gpt2
if ((${#includes[@]} == 0)); then
  for range in gpt2/ 'gpt2_fused/prefill/h.0/attn/' 'gpt2_fused/decode/h.0/attn/' bench/ selftest/; do includes+=(--include "$range"); done
fi
if [[ -n $selftest ]]; then
  run=runs/$stamp-$slug-selftest includes=(--include selftest/)
  set -- --only selftest "$@"
fi
window=("$PYTHON" -m harness.run --mode capture --out "$run/captures" "$@")
if [[ -z $dry ]]; then mkdir -p "$run/captures" "$run/raw"; fi
lowered=()

captures_started=$SECONDS
if [[ -z $selftest ]]; then
  step "1/5 timing, no tool attached" "$PYTHON" -m harness.run --mode bare --out "$run/captures" "$@" || lowered+=("timing")
  step "2/5 timeline under nsys" "$HERE/nsys_capture.sh" --out "$run" -- "${window[@]}" || lowered+=("nsys")
fi
step "3/5 counters under ncu" "$HERE/ncu_capture.sh" ${deep:+"$deep"} "${includes[@]}" --out "$run" -- "${window[@]}" || lowered+=("ncu")
if [[ -n $dry || -s $run/raw/timeline.nsys-rep || -s $run/raw/timeline.qdstrm || -s $run/raw/counters.ncu-rep ]]; then
  step "4/5 export" "$HERE/export_csv.sh" "$run" || lowered+=("the export")
fi
if [[ -z $dry ]]; then echo "   captured in $((SECONDS - captures_started)) s"; fi
report "5/5 report" "$run/captures" --out "$run"
if [[ -n $dry ]]; then exit 0; fi

if ((${#lowered[@]})); then echo "Without ${lowered[*]}: the report is one evidence tier lower and says why under its gaps."; fi
if [[ -s $run/raw/timeline.nsys-rep ]]; then echo "Timeline: nsys-ui $run/raw/timeline.nsys-rep"; fi
if [[ -s $run/raw/counters.ncu-rep ]]; then echo "Counters: ncu-ui $run/raw/counters.ncu-rep"; fi
if [[ -n $selftest ]]; then "$PYTHON" "$HERE/status.py" trusted "$run/report.json"; fi

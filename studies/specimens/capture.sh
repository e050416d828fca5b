#!/usr/bin/env bash
# Check, time and capture the specimens: pairs of kernels and of timelines, one slowed by one defect, one fixed.
#
# usage: capture.sh [-n] [--steps LIST] [--seconds S] --out DIR [NAME…]
#
#   -n            print the commands, run nothing
#   --steps LIST  comma-separated; default: all but full:
#                   check      each kernel against its reference: check.txt
#                   times      without a profiler: times.csv
#                   counters   the catalogue's metrics: ncu_raw.csv.xz, ncu_ratios.csv.xz
#                   full       the sections of ncu's set full but PM sampling and links, and sources:
#                              full_raw.csv.xz, full_details.csv.xz
#                   walls      the timelines without a profiler: times_timelines.csv
#                   timelines  nsys of the timelines: nsys/*.csv.xz
#   --seconds S   `full` starts no launch later than S seconds after its start, and keeps its results
#   --out DIR     folder of the results, with how they were captured; the tools' reports stay in DIR/raw
#   NAME          beginnings of names of kernels or timelines, in the order of their runs (default: all)
#
# The script changes no GPU clock. If a step fails, the script names it and runs the others.
# exit: 0 all done, 1 a step failed, 2 usage, 127 nvcc or ncu missing
# shellcheck disable=SC2329 # step calls the functions
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
source "$ROOT/nsys_scripts/common.sh"

dry='' steps=check,times,counters,walls,timelines seconds='' out='' names=()
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --steps) value "$1" $# && steps=$2 && shift 2 ;;
  --seconds) value "$1" $# && seconds=$2 && shift 2 ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  -*) bad_usage "Unknown argument $1." ;;
  *) names+=("$1") && shift ;;
  esac
done
[[ -n $out ]] || bad_usage "No --out."
[[ -z $seconds || $seconds =~ ^[1-9][0-9]*$ ]] || bad_usage "--seconds takes a whole number from 1 on, not '$seconds'."
for one in ${steps//,/ }; do
  [[ $one =~ ^(check|times|counters|full|walls|timelines)$ ]] || bad_usage "Unknown step '$one'."
done
driver=$ROOT/build/specimens/driver failed=0
ncu=$(find_ncu) || ncu=${dry:+ncu}
SECTIONS=(SpeedOfLight SpeedOfLight_RooflineChart ComputeWorkloadAnalysis MemoryWorkloadAnalysis
  MemoryWorkloadAnalysis_Chart MemoryWorkloadAnalysis_Tables SchedulerStats WarpStateStats InstructionStats LaunchStats
  Occupancy WorkloadDistribution SourceCounters)

wanted() { [[ ,$steps, == *,$1,* ]]; }
go_on() { step "$@" || { failed=1 && echo "== $1 failed" >&2; }; } # TITLE COMMAND…
to() { # FILE COMMAND…: its output as a file, shown where it fails
  "${@:2}" >"$1" || { tail -n 5 "$1" >&2 && return 1; }
}
measure() { (cd "$ROOT" && "$PYTHON" -m studies.specimens.measure "$@"); }
pack() { # FOLDER: its tables, compressed beside the others
  local file
  for file in "$1"/*.csv; do xz -9e -T0 -f -k -c "$file" >"$out/${file#"$out/captures/"}.xz" || return 1; done
}
page() { # PAGE OPTIONS…: a page of the full sections as CSV, without the names of the machine
  "$ncu" --import "$out/raw/full.ncu-rep" --csv --page "$1" "${@:2}" >"$out/raw/full_$1.csv" &&
    ours harness.profile.scrub "$out/raw/full_$1.csv" --to "$out/captures"
}
if [[ -z $dry ]]; then mkdir -p "$out/raw" "$out/captures/nsys" "$out/nsys"; fi
if [[ ! -x $driver && ,$steps, =~ ,(check|times|counters|full), ]]; then
  go_on "build" env -C "$ROOT" "$PYTHON" -m kernels.specimens.build
fi
[[ -n $ncu ]] || die 127 "ncu was not found."
if wanted check; then go_on "check" to "$out/check.txt" "$driver" --check "${names[@]}"; fi
if wanted times; then go_on "times" to "$out/times.csv" "$driver" --time "${names[@]}"; fi
if wanted counters; then
  go_on "counters" "$HERE/ncu_capture.sh" --out "$out" -- "$driver" --run "${names[@]}"
  go_on "pages of the counters" "$HERE/export_csv.sh" --only ncu "$out"
fi
if wanted full; then
  go_on "full sections" "$ncu" "${SECTIONS[@]/#/--section=}" --import-source yes --nvtx --profile-from-start off \
    --clock-control none -f -o "$out/raw/full" "$driver" --run "${names[@]}" ${seconds:+--seconds "$seconds"}
  go_on "raw page" page raw --print-units base
  go_on "details page" page details --print-units base
fi
if wanted walls; then go_on "times of timelines" to "$out/times_timelines.csv" measure --time "${names[@]}"; fi
if wanted timelines; then
  go_on "timelines" "$HERE/nsys_capture.sh" --out "$out" -- env -C "$ROOT" "$PYTHON" -m studies.specimens.measure --run \
    "${names[@]}"
  go_on "pages of the timelines" "$HERE/export_csv.sh" --only nsys "$out"
fi
if [[ -z $dry ]]; then
  for folder in "$out/captures" "$out/captures/nsys"; do
    if compgen -G "$folder/*.csv" >/dev/null; then go_on "packing" pack "$folder"; fi
  done
fi
exit "$failed"

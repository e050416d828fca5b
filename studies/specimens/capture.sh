#!/usr/bin/env bash
# Check, time and capture the specimens: pairs of kernels and of timelines, slow by one defect and fixed.
#
# usage: capture.sh [-n] [--full] [--half development|validation] --out DIR
#
#   -n           print the commands, run nothing
#   --full       the full sections and sources of every kernel too: DIR/full.csv.xz (minutes)
#   --half HALF  only this half
#   --out DIR    check.txt, times.csv and times_timelines.csv (no tool attached), ncu_raw.csv.xz and ncu_ratios.csv.xz (the
#                catalogue's metrics), nsys/*.csv.xz, and how it was captured; reports stay in DIR/raw
#
# No GPU clock is touched. Every step that fails is named, and the others go on.
# exit: 0 all done, 1 a step failed, 2 usage, 127 nvcc or ncu missing
# shellcheck disable=SC2329 # step calls the functions
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
source "$ROOT/nsys_scripts/common.sh"

dry='' full='' half='' out=''
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=yes && shift ;;
  --full) full=yes && shift ;;
  --half) value "$1" $# && half=$2 && shift 2 ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  *) bad_usage "Unknown argument $1." ;;
  esac
done
[[ -n $out ]] || bad_usage "No --out."
[[ -z $half || $half == development || $half == validation ]] || bad_usage "--half is development or validation, not $half."
driver=$ROOT/build/specimens/driver failed=0
ncu=$(find_ncu) || ncu=''

step() { # NAME COMMAND…
  if [[ -n $dry ]]; then
    show "${@:2}"
  else
    echo "== $1, after $SECONDS s" >&2
    "${@:2}" || { failed=1 && echo "== $1 failed" >&2; }
  fi
}
to() { # FILE COMMAND…: its output as a file, shown where it fails
  "${@:2}" >"$1" || { tail -n 5 "$1" >&2 && return 1; }
}
measure() { (cd "$ROOT" && "$PYTHON" -m studies.specimens.measure "$@"); }
pack() { # FILE…: compressed beside the others
  for file in "$@"; do xz -9e -T0 -f -k -c "$file" >"$out/${file#"$out/captures/"}.xz" || return 1; done
}
full_page() { # every section as CSV, without the names of the machine
  "$ncu" --import "$out/raw/full.ncu-rep" --csv --page raw --print-units base >"$out/raw/full.csv" &&
    "$PYTHON" "$HERE/scrub.py" "$out/raw/full.csv" --to "$out/captures" && pack "$out/captures/full.csv"
}

[[ -n $dry ]] || mkdir -p "$out/raw" "$out/captures/nsys" "$out/nsys"
if ! [[ -x $driver ]]; then step "build" env -C "$ROOT" "$PYTHON" -m kernels.specimens.build; fi
[[ -n $dry || -n $ncu ]] || die 127 "ncu was not found."
step "check" to "$out/check.txt" "$driver" --check ${half:+"$half/"}
step "times" to "$out/times.csv" "$driver" --time ${half:+"$half/"}
step "times of timelines" to "$out/times_timelines.csv" measure --time ${half:+"$half/"}
step "counters" "$HERE/ncu_capture.sh" --out "$out" -- "$driver" --run ${half:+"$half/"}
step "timelines" "$HERE/nsys_capture.sh" --out "$out" -- env -C "$ROOT" "$PYTHON" -m studies.specimens.measure --run ${half:+"$half/"}
step "exports" "$HERE/export_csv.sh" "$out"
if [[ -z $dry ]]; then step "packing" pack "$out"/captures/*.csv "$out"/captures/nsys/*.csv; fi
if [[ -n $full ]]; then
  step "full sections" "$ncu" --set full --import-source yes --nvtx --profile-from-start off --clock-control none -f \
    -o "$out/raw/full" "$driver" --run ${half:+"$half/"}
  step "full page" full_page
fi
exit "$failed"

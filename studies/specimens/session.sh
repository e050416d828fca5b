#!/usr/bin/env bash
# Capture on the GPU what the answer key still lacks: the holdout, full sections, rungs of the ladders, timelines.
#
# usage: session.sh [-n] [--seconds S] --out DIR
#
#   -n           print the commands, run nothing
#   --seconds S  seconds for everything (default 235); full sections come last and take the remaining time
#   --out DIR    a folder for each part: DIR/holdout, DIR/rungs, DIR/timelines, DIR/full
#
# Compile before, without a GPU: `python -m kernels.specimens.build` for the specimens, `python -m kernels.build` for the
# rungs. Expected seconds on an H200: holdout 30 (77 launches), rungs 85 (50 points), timelines 45 (12 pairs), full sections
# 125 (79 launches). The script changes no GPU clock. If a part fails, the script names it and runs the others.
#
# Afterwards, without a GPU:
#   python -m studies.specimens.merge DIR/holdout DIR/rungs DIR/timelines DIR/full
#   python -m studies.specimens.source_page DIR/full/raw/full.ncu-rep
#   python -m studies.specimens.scorecard --record    the first score of the holdout, before anybody tunes, and the page
# exit: 0 all done, 1 a part failed, 2 usage
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
source "$ROOT/nsys_scripts/common.sh"

dry='' seconds=235 out=''
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=-n && shift ;;
  --seconds) value "$1" $# && seconds=$2 && shift 2 ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  *) bad_usage "Unknown argument $1." ;;
  esac
done
[[ -n $out ]] || bad_usage "No --out."
[[ $seconds =~ ^[1-9][0-9]*$ ]] || bad_usage "--seconds takes a whole number from 1 on, not '$seconds'."

failed=0 EXPORT=15 # seconds that the pages of the full sections take
part() { # NAME STEPS OPTIONS…
  local started=$SECONDS
  if [[ -n $dry ]]; then echo "# $1"; fi
  "$ROOT/studies/specimens/capture.sh" ${dry:+"$dry"} --steps "$2" --out "$out/$1" "${@:3}" || failed=1
  if [[ -z $dry ]]; then echo "== $1: $((SECONDS - started)) s" >&2; fi
}
full=$(cd "$ROOT" && "$PYTHON" -m studies.specimens.wanted) || exit 1
part holdout check,times,counters holdout/
part rungs rungs
part timelines walls,timelines holdout/ development/data_loader development/rank_waits validation/rank_waits
left=$((seconds - SECONDS - EXPORT))
# shellcheck disable=SC2086 # one name a word
if ((left > 0)) && [[ -n $full ]]; then part full full --seconds "$left" $full; fi
exit "$failed"

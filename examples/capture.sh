#!/usr/bin/env bash
# Profile every example on this GPU and keep what may be committed: packed captures, report.json and report.txt.
#
# usage: capture.sh [-n] [--budget S] [NAME…]
#
#   -n          print the commands, run nothing
#   --budget S  seconds that ncu may spend on each (default 20)
#   NAME        examples by their names in examples.toml (default: all)
#
# Each lands in examples/h200/NAME; `make readme` then compares it with its expert's list. A miss needs its reason in examples.toml.
# exit: 0 all were captured, 1 one failed, 2 usage
here=$(cd "$(dirname "$0")" && pwd)
HERE=$here/../nsys_scripts
# shellcheck source=/dev/null
source "$HERE/common.sh"

dry='' budget=20
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=yes && shift ;;
  --budget) value "$1" $# && budget=$2 && shift 2 ;;
  -*) bad_usage "Unknown argument $1." ;;
  *) break ;;
  esac
done
listed=$(cd "$ROOT" && "$PYTHON" -m analysis.examples "$@") || exit 2

if [[ $PYTHON == */* ]]; then PATH=$(cd "$(dirname "$PYTHON")" && pwd):$PATH; fi # python3 of the commands is the project's

worst=0
while IFS=$'\t' read -r name build command; do
  run=$ROOT/runs/example-$name kept=$here/h200/$name
  mkdir -p "$ROOT/build"
  if [[ -n $dry ]]; then
    [[ $build == : ]] || echo "$build"
    echo "profile.sh --run $run --budget $budget -- $command"
    continue
  fi
  (cd "$ROOT" && eval "$build" && nsys_scripts/profile.sh --run "$run" --budget "$budget" -- "$command" </dev/null) || { worst=1 && continue; }
  rm -rf "$kept" && mkdir -p "$kept"
  cp -r "$run/captures" "$run/report.json" "$kept/"
  find "$kept/captures" -name '*.csv' -size +8k -exec xz -9e {} +
  (cd "$ROOT" && "$PYTHON" analysis/report.py "$kept/captures" --out "$run" --text >"$kept/report.txt")
done <<<"$listed"
exit "$worst"

#!/usr/bin/env bash
# Profile every example on this GPU, and keep the files to commit: packed captures and report.json, and report.txt.
#
# usage: capture.sh [-n] [--budget S] [--seconds S] [--report] [NAME…]
#
#   -n          print the commands, run nothing
#   --budget S  seconds that ncu may spend on each (default 12)
#   --seconds S start no example after so many seconds, and name those that are left (default: no limit)
#   --report    only write the reports of captures that were kept; needs no GPU
#   NAME        examples by their names in examples.toml (default: all)
#
# The results of an example go to examples/<gpu>/NAME as soon as it is done. `make readme` then shows its first findings below
# the expert's list. The captures stay even if the report fails: --report writes it again.
# exit: 0 all were captured, 1 one failed, 2 usage
here=$(cd "$(dirname "$0")" && pwd)
HERE=$here/../nsys_scripts
# shellcheck source=/dev/null
source "$HERE/common.sh"

dry='' budget=12 only='' most=''
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --budget) value "$1" $# && budget=$2 && shift 2 ;;
  --seconds) value "$1" $# && most=$2 && shift 2 ;;
  --report) only=report && shift ;;
  -*) bad_usage "Unknown argument $1." ;;
  *) break ;;
  esac
done
listed=$(cd "$ROOT" && "$PYTHON" -m studies.publish.examples "$@") || exit 2

if [[ $PYTHON == */* ]]; then PATH=$(cd "$(dirname "$PYTHON")" && pwd):$PATH; fi # python3 of the commands is the project's

keep() { # RUN KEPT: the captures of a run, packed
  [[ -d $1/captures/nsys ]] || return 1
  rm -rf "$2" && mkdir -p "$2"
  cp -r "$1/captures" "$2/"
  find "$2/captures" -name '*.csv' -size +8k -exec xz -9e {} +
}

report() { # KEPT RUN: report.json (packed) and report.txt of what was kept
  (cd "$ROOT" && "$PYTHON" analysis/report.py "$1/captures" --out "$2" --text >"$1/report.txt" && xz -9ec "$2/report.json" >"$1/report.json.xz")
}

gpu=$(find_gpu | sed -En 's/^NVIDIA (\w+).*/\L\1/p') || gpu='' # the folder of this GPU: h200
worst=0
while IFS=$'\t' read -r name build options command; do
  run=$ROOT/runs/example-$name kept=$here/${gpu:-h200}/$name
  if [[ -n $only && ! -d $kept ]]; then kept=$(compgen -G "$here/h*/$name" || echo "$kept"); fi
  [[ $dry ]] || mkdir -p "$ROOT/build"
  [[ $options != -- ]] || options="--budget $budget"
  if [[ -n $dry ]]; then
    [[ $build == : ]] || echo "$build"
    echo "profile.sh --run $run $options -- $command"
    continue
  fi
  if [[ -z $only && -n $most ]] && ((SECONDS > most)); then
    echo "capture.sh: $name is left; go on with capture.sh $name" >&2 && worst=1 && continue
  fi
  if [[ -z $only ]]; then
    # shellcheck disable=SC2086 # options are words
    (cd "$ROOT" && eval "$build" && nsys_scripts/profile.sh --run "$run" $options -- "$command" </dev/null) || worst=1
    keep "$run" "$kept" || { echo "capture.sh: $name left no timeline." >&2 && worst=1 && continue; }
    echo "$name: captured at ${SECONDS} s, $(du -sk "$kept" | cut -f1) KB kept"
  fi
  [[ -d $kept ]] || continue
  report "$kept" "$run" || { echo "capture.sh: the report of $name failed; capture.sh --report $name makes it." >&2 && worst=1; }
done <<<"$listed"
exit "$worst"

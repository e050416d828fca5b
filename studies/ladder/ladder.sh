#!/usr/bin/env bash
# Check, time and capture every rung of every kernel ladder: the driver behind `make ladder`.
#
# usage: ladder.sh [-n] [--out DIR] [--missing] [--all] [--accept] [--seconds N] [OP…]
#
#   -n           print the exact commands, run nothing
#   --out DIR    folder of the ladder (default: runs/ladder); each call adds a run folder of its own
#   --missing    only list missing points: not measured yet, or measured with a source that has changed since. If nothing was
#                measured here, DIR is by default the ladder of the first GPU in reports/published.toml
#   --all        also measure points again that DIR already has
#   --accept     write the tables even if the time of a rung got worse; otherwise they stay as they were
#   --seconds N  time for each op's capture (default 120): no point starts later than that, and our own kernels come first. A
#                capture ends at the latest a minute later, or a minute and eight seconds a point after its start. Its
#                remaining points stay missing
#   OP…          only these ops of kernels.registry
#
# Points of earlier calls stay; the newest run that has a point counts. The script does not repeat times that a benchmark
# beside DIR took (reports/x-<op>-bench beside reports/x-ladder). At the end it writes the tables of DIR, and lists the
# points that are still missing. Without a GPU, it only does --missing and the tables.
# exit: 0 done, 1 a step failed, 2 usage or no GPU
source "$(dirname "$0")/../../nsys_scripts/common.sh"

dry='' dir='' missing='' all='' accept='' seconds=120 ops=()
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --out) value "$1" $# && dir=$2 && shift 2 ;;
  --missing) missing=yes && shift ;;
  --all) all=--all && shift ;;
  --accept) accept=--accept && shift ;;
  --seconds)
    value "$1" $# && seconds=$2 && shift 2
    [[ $seconds =~ ^[1-9][0-9]*$ ]] || bad_usage "--seconds takes a whole number from 1 on, not '$seconds'."
    ;;
  -*) bad_usage "Unknown argument $1." ;;
  *) ops+=("$1") && shift ;;
  esac
done
if [[ -n $dir ]]; then dir=$(realpath -m --relative-to "$ROOT" "$dir"); fi
cd "$ROOT"
if [[ -n $dir && ! -e $dir/ladder.json && -n $(compgen -G "$dir/*") ]]; then
  bad_usage "--out $dir is no folder of a ladder: it holds other things and no ladder.json; give a new or an empty one."
fi
if [[ -z $dir ]]; then
  dir=runs/ladder
  if [[ -n $missing && -z $(compgen -G "$dir/*/captures") ]]; then dir=$("$PYTHON" -m studies.runs ladder --first) || exit; fi
fi
only=(${ops[@]+--ops "${ops[@]}"})
run=$dir/$(date -u +%Y%m%dT%H%M%SZ)

capture() { # RUN COLUMNS OPTION: the points of a run under ncu, and its exports
  local code=0 points=0
  # one kernel that hangs under ncu does not cost what the other ops need
  if [[ -z $dry ]]; then points=$(grep -c ',yes,' "$1/captures/points.csv" || true); fi
  limit=$((60 + (points * 8 < seconds ? points * 8 : seconds))) step "2/4 counters under ncu: ${1#"$run"-}" "$HERE/ncu_capture.sh" --include ladder/ "$3" --columns "$2" \
    --out "$1" -- "$PYTHON" -m studies.ladder.measure --mode capture --run "$1" --seconds "$seconds" || code=$?
  if ((code)); then failed=yes; fi
  if ((code == 124 || code == 137)); then
    echo "This capture did not end in time; its last kernel: $(grep '^==PROF== Profiling' "$1/raw/ncu.log" | tail -n 1 || true)" >&2
    rm -f "$1/raw/counters.ncu-rep"
  elif [[ -n $dry || -s $1/raw/counters.ncu-rep ]]; then
    if [[ -n $dry ]]; then
      step "3/4 export" "$HERE/export_csv.sh" "$1"
    else # beside the next capture: it needs no GPU
      "$HERE/export_csv.sh" "$1" >"$1/raw/export.log" 2>&1 &
      exports[$!]=$1
    fi
  fi
}

ladder() { step "$1" "$PYTHON" -m studies.ladder.measure --mode "${@:2}"; }

if [[ -n $missing ]]; then
  ladder "what is missing" missing --out "$dir" ${only[@]+"${only[@]}"}
  exit
fi
if [[ -z $dry ]] && ! gpu=$(find_gpu); then die 2 "The ladder is measured on an NVIDIA GPU, and there is none here ($gpu): --missing lists what is to be done."; fi
ladder "what is to be measured" declare --out "$dir" ${only[@]+"${only[@]}"}

failed='' code=0 exports=()
ladder "1/4 checks and times" measure --out "$dir" --run "$run" ${all:+"$all"} ${only[@]+"${only[@]}"} || code=$?
case $code in
0) ;;
1) failed=yes ;; # a point failed its check, the others go on
4) exit 0 ;;     # nothing is missing
*) exit 1 ;;
esac
columns=$("$PYTHON" -m studies.ladder.build --columns) && few=$("$PYTHON" -m studies.ladder.build --columns --slow) || exit 1
runs=("$run"-*)
if [[ -n $dry ]]; then runs=("$run-OP" "$run-OP-slow"); fi
for one in "${runs[@]}"; do if [[ $one != *-slow ]]; then capture "$one" "$columns" --source; fi; done
for one in "${runs[@]}"; do if [[ $one == *-slow ]]; then capture "$one" "$few" --samples; fi; done
for export in ${exports[@]+"${!exports[@]}"}; do
  if [[ -z $dry ]]; then printf '\n== 3/4 export: %s\n' "${exports[export]#"$run"-}"; fi
  wait "$export" || failed=yes
  cat "${exports[export]}/raw/export.log"
  rm -f "${exports[export]}/captures/ncu_source.csv" # the tables read ncu_lines.csv, and hundreds of pages are large
done
step "4/4 tables" "$PYTHON" -m studies.ladder.build "$dir" ${accept:+"$accept"} || failed=yes
ladder "what is still missing" missing --out "$dir" ${only[@]+"${only[@]}"}
if [[ -n $failed ]]; then exit 1; fi

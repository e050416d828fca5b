#!/usr/bin/env bash
# Run every CUDA rung under compute-sanitizer, with a torch-free driver that kernels/glue.py generates.
#
#   tests/gpu/sanitize.sh [TOOL ...]      tools of compute-sanitizer (default: memcheck racecheck synccheck initcheck)
#
# The script builds the driver twice: with the sources' defaults ("default"), and with the choices of kernels/tuned.toml
# for this GPU ("tuned"), as kernels.build does. Every line that a driver or a tool prints begins with the build's name.
#
# ONLY=memory or compute: only the kernels bound by that. ONLY=matmul, for example: only that folder of kernels/.
# BUILD=default or tuned: only that build; KERNEL_LEDGER_TUNED=off: no tuned one. BUILD_ONLY=yes: build the drivers, run
# no tool. LIMIT: end a run after so many seconds. All runs go at the same time; build/sanitize has a log of each.
# The tools check all kernels: with a filter of kernels, racecheck 2025.3.1 breaks every cluster outside of the filter.
# It needs nvcc, compute-sanitizer, Python and a GPU. Exit code 127: one is missing; 1: a tool found something.
source "$(dirname "$0")/../../nsys_scripts/common.sh"
source "$(dirname "$0")/sanitized.sh"
cd "$ROOT"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  usage
  exit 0
fi
for tool in nvcc compute-sanitizer nvidia-smi "$PYTHON"; do
  if ! command -v "$tool" >/dev/null; then
    die 127 "$tool was not found: install the CUDA toolkit and Python 3.11 or newer, on a machine with an NVIDIA GPU."
  fi
done

arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
[[ $arch == 90 ]] && arch=90a # with the instructions of Hopper alone
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
place=build/sanitize
mkdir -p "$place"
sources=("$place/driver.cu")
while read -r source; do sources+=("$source"); done < <("$PYTHON" -m kernels.glue "$place/driver.cu")
((${#sources[@]} > 1)) || die 127 "the driver was not written: Python 3.11 or newer writes it, give its path as PYTHON."
# a line each: a source that is tuned, and its flags
tuned=""
[[ ${BUILD:-} == default ]] || tuned=$("$PYTHON" -c '
import sys
from kernels import tuned

for source in sys.argv[2:]:
    if flags := tuned.flags(source.removeprefix("kernels/"), sys.argv[1]):
        print(source, *flags)
' "$gpu" "${sources[@]:1}") || die 127 "kernels/tuned.toml was not read: Python 3.11 or newer reads it, give its path as PYTHON."
builds=(default)
declare -A flags=() made=()
if [[ -n $tuned ]]; then
  builds+=(tuned)
  while read -r source words; do
    echo "tuned: $source $words"
    flags[tuned $source]=$words
  done <<<"$tuned"
elif [[ ${BUILD:-} != default ]]; then
  echo "There is no tuned build: kernels/tuned.toml has nothing for $gpu, or KERNEL_LEDGER_TUNED is off."
fi
if [[ -n ${BUILD:-} ]]; then
  [[ " ${builds[*]} " == *" $BUILD "* ]] || bad_usage "BUILD is one of ${builds[*]}, not '$BUILD'."
  builds=("$BUILD")
fi

for build in "${builds[@]}"; do
  objects=() pids=()
  for source in "${sources[@]}"; do
    read -ra more <<<"${flags[$build $source]:-}"
    object=$place/$(tr / _ <<<"${source%.cu}")${more[*]:+.tuned}.o
    objects+=("$object")
    [[ -z ${made[$object]:-} ]] || continue
    made[$object]=yes
    if [[ -f $object && -z $(find "$source" kernels tests/gpu/driver.h -newer "$object" -type f -name '*.[chp]*' -print -quit) ]]; then
      continue
    fi
    # one compiler a file, side by side
    nvcc -std=c++17 -O1 -lineinfo -I. -Ikernels/include -gencode "arch=compute_$arch,code=sm_$arch" ${more[@]+"${more[@]}"} \
      -c "$source" -o "$object" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  nvcc -o "$place/driver-$build" "${objects[@]}"
done

[[ ${BUILD_ONLY:-} ]] && exit 0

rm -f "$place"/*.log "$place"/*.status
read -ra tools <<<"${*:-memcheck racecheck synccheck initcheck}"
parts=("${ONLY:-}")
[[ -n ${ONLY:-} ]] || parts=(memory matmul attention attention_grouped)
for tool in "${tools[@]}"; do
  for build in "${builds[@]}"; do
    for part in "${parts[@]}"; do
      sanitized "$place" "${LIMIT:-3600}" "$tool" "$build" "$part" "$place/driver-$build" "$part" &
    done
  done
done
wait
status=0
for log in "$place"/*.status; do
  read -r tool build part code seconds <"$log"
  sed "s/^/$build $tool $part: /" "${log%.status}.log"
  echo "$build $tool $part: exit status $code after $seconds s"
  ((code == 0)) || status=1
done
exit "$status"

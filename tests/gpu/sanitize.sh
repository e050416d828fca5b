#!/usr/bin/env bash
# Runs every kernel under compute-sanitizer by the torch-free driver beside this script: memcheck, then racecheck.
#
#   tests/gpu/sanitize.sh [TOOL ...]      tools of compute-sanitizer (default: memcheck racecheck)
#
# ONLY=memory, matmul or attention: only the kernels bound by memory, only these; ONLY=compute: the last two.
# Needs nvcc, compute-sanitizer and a GPU; 127 where one is missing, else 1 if a tool finds anything.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
  exit 0
fi
for tool in nvcc compute-sanitizer nvidia-smi; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool was not found: install the CUDA toolkit, on a machine with an NVIDIA GPU." >&2
    exit 127
  fi
done

arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
[[ $arch == 90 ]] && arch=90a # with the instructions of Hopper alone
build=build/sanitize
mkdir -p "$build"
# every op that the driver names
sources=(tests/gpu/driver.cu)
while read -r folder; do sources+=(kernels/"$folder"/*.cu); done < <(
  sed -n 's|^#include "../../kernels/\([^/]*\)/.*|\1|p' tests/gpu/driver.cu
)

# one compiler a file, side by side
objects=()
pids=()
for source in "${sources[@]}"; do
  object=$build/$(tr / _ <<<"${source%.cu}").o
  objects+=("$object")
  nvcc -std=c++17 -O1 -lineinfo -Ikernels/include -gencode "arch=compute_$arch,code=sm_$arch" -c "$source" -o "$object" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
nvcc -o "$build/driver" "${objects[@]}"

status=0
for tool in "${@:-memcheck racecheck}"; do
  for name in $tool; do
    echo "== $name"
    compute-sanitizer --tool "$name" --error-exitcode 1 --print-limit 20 "$build/driver" "${ONLY:-}" || status=1
  done
done
exit "$status"

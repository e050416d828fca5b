#!/usr/bin/env bash
# Decode GPT-2 124M with random weights many times by kernels/decode, without torch; then under compute-sanitizer.
#
#   tests/gpu/decode_stress.sh [-n] [TOKENS]     tokens to decode beside other work (default: 1000000, about two minutes)
#
# Every launch must give the text of the first. A lost wake-up ends the kernel after 100 s, and the error says where. The
# printed times are no benchmark: copies in two streams run beside the launches. -n prints the commands.
# SANITIZE=no: do not run compute-sanitizer. SWEEP=yes: instead, only time a token by how many of a block's tiles of the
# output embedding are to stay in L2. It needs nvcc,
# compute-sanitizer and a GPU of compute capability 9.0. Exit code 127: one is missing; 1: a text differs, or a tool found
# something.
source "$(dirname "$0")/../../nsys_scripts/common.sh"
source "$(dirname "$0")/sanitized.sh"
cd "$ROOT"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  usage
  exit 0
fi
run() {
  echo "+ $*"
  [[ -n $dry ]] || "$@"
}
dry=""
if [[ ${1:-} == -n ]]; then
  dry=yes
  shift
fi
[[ ${1:-1} =~ ^[1-9][0-9]*$ ]] || bad_usage "TOKENS is a number of 1 or more, not '$1'."
for tool in nvcc compute-sanitizer nvidia-smi; do
  if [[ -z $dry ]] && ! command -v "$tool" >/dev/null; then
    die 127 "$tool was not found: install the CUDA toolkit, on a machine with an NVIDIA GPU."
  fi
done

# One run of a tool, whose log and exit status lie where tests/gpu/sanitize.sh leaves its own.
checked() { # TOOL LAUNCHER TOKENS
  local place=build/sanitize code=0 command
  tool_command "${LIMIT:-300}" "$1" "$driver" 0 "$3" 0 "$2"
  echo "+ ${command[*]}"
  [[ -n $dry ]] && return
  mkdir -p "$place"
  sanitized "$place" "${LIMIT:-300}" "$1" default "decode_$2" "$driver" 0 "$3" 0 "$2" || code=$?
  cat "$place/$1-default-decode_$2.log"
  return "$code"
}
build_driver() { # FILE FLAG...
  run nvcc -std=c++17 -O3 -lineinfo -Itests/cuda_on_cpu -Ikernels/decode -Ikernels/include "${@:2}" \
    -gencode arch=compute_90,code=sm_90 -x cu tests/cuda_on_cpu/stress.cpp -o "$1"
}

status=0
driver=build/decode_stress
run mkdir -p build
if [[ -n ${SWEEP:-} ]]; then
  build_driver "$driver"
  for kept in 0 2 3 4 5; do
    echo "tiles of the output embedding that are to stay in L2: every $kept-th"
    run "$driver" 10 200 0 persistent "$kept" || status=1
  done
  exit "$status"
fi
build_driver "$driver"
each=1000
runs=$(((${1:-1000000} + each - 1) / each))
run "$driver" 20 "$each" 0 || status=1 # alone: the time of a token is that of an idle GPU
run "$driver" 5 64 0 few || status=1
run "$driver" "$runs" "$each" 2 || status=1
run "$driver" 20 "$each" 2 few || status=1
if [[ ${SANITIZE:-yes} != no ]]; then
  for tool in memcheck synccheck initcheck; do
    checked "$tool" persistent 600 || status=1 # so that threads have a second pair of cached rows
    checked "$tool" few 4 || status=1 # of more launches in flight the tools lose track
  done
fi
exit "$status"

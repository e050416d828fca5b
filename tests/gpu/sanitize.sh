#!/usr/bin/env bash
# Run every CUDA rung under compute-sanitizer, in the GPU tests that check it against float64.
#
#   tests/gpu/sanitize.sh [TOOL ...]      tools of compute-sanitizer (default: memcheck racecheck synccheck initcheck)
#
# ONLY=matmul, for example: only the rungs with this word in their name or in that of their op. KERNEL_LEDGER_TUNED=off:
# the defaults of the sources, not the choices of kernels/tuned.toml for this GPU. LIMIT: end a tool after so many seconds.
# torch allocates each tensor by itself, so that the tools see its bounds. build/sanitize has a log of each tool.
# It needs compute-sanitizer, the extras of the harness, and a GPU. Exit code 127: one is missing; 1: a tool found something.
source "$(dirname "$0")/../../nsys_scripts/common.sh"
cd "$ROOT"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  usage
  exit 0
fi
for tool in compute-sanitizer "$PYTHON"; do
  command -v "$tool" >/dev/null || die 127 "$tool was not found: install the CUDA toolkit and Python 3.11 or newer."
done
find_gpu >/dev/null || die 127 "There is no NVIDIA GPU here, and the tools watch kernels that run."
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
mkdir -p build/sanitize
read -ra tools <<<"${*:-memcheck racecheck synccheck initcheck}"
rungs="test_against_float64 and (v0 or v1 or v2)${ONLY:+ and $ONLY}"
status=0
for tool in "${tools[@]}"; do
  log=build/sanitize/$tool.log code=0
  timeout "${LIMIT:-3600}" compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 20 \
    "$PYTHON" -m pytest -q -p no:cacheprovider tests/gpu/test_ops.py -k "$rungs" 2>&1 | tee "$log" || code=$?
  # a tool that could not watch a launch says so, and then ends as if it had found nothing
  if grep -q "Internal Sanitizer Error" "$log"; then code=1; fi
  echo "$tool: exit status $code"
  ((code == 0)) || status=1
done
exit "$status"

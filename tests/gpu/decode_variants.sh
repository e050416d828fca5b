#!/usr/bin/env bash
# Time variants of kernels/decode against the version of a commit, which take turns.
#
#   tests/gpu/decode_variants.sh build [COMMIT]   compile all into build/decode_variants; needs nvcc and git, and no GPU
#   tests/gpu/decode_variants.sh run [ROUNDS]     time them on the GPU at hand (default: 5 rounds), persistent, then few
#
# COMMIT (default: main) is the version that `today` has. A round starts a process for each variant; every second round takes
# them in reverse. One that failed is not tried again. A process decodes 300 tokens nine times from an empty cache, and
# gives the median. `run` writes times.csv, variants.csv, the texts and the phases of each variant to $OUT (default:
# build/decode_variants/out). ONLY: names to run. JOBS: compilers side by side (default: 2).
source "$(dirname "$0")/../../nsys_scripts/common.sh"
cd "$ROOT"

place=build/decode_variants
# name|commit|flags|the driver's argument behind the launcher (default: 3, every third tile of the output embedding stays in
# L2; of the older versions: tiles that L2 is asked for in each layer); no commit: this tree. 97d99e29 has four exchanges of
# words a layer, 56c04860 two of sums.
VARIANTS=(
  "words|97d99e29||1"
  "sums|56c04860||1:0"
  "kept0|||0"
  "kept5|||5"
  "slots12||-DDECODE_FEW_SLOTS=12"
  "slots15||-DDECODE_FEW_SLOTS=15"
)
FEW="today words sums kept0 slots12 slots15"

compile() { # SOURCES NAME FLAGS…
  local from=$1 name=$2
  shift 2
  nvcc -std=c++17 -O3 -lineinfo "-I$from/tests/cuda_on_cpu" "-I$from/kernels/decode" "-I$from/kernels/include" "$@" \
    -gencode arch=compute_90,code=sm_90 -Xptxas -v -x cu "$from/tests/cuda_on_cpu/stress.cpp" -o "$place/$name" \
    >"$place/$name.log" 2>&1 || { cat "$place/$name.log" >&2; return 1; }
}

build() {
  need nvcc "nvcc was not found: install the CUDA toolkit."
  local jobs=() variant name commit flags
  for variant in "today|${1:-main}" "${VARIANTS[@]}"; do
    IFS='|' read -r name commit flags _ <<<"$variant"
    local from=.
    if [[ -n $commit ]]; then
      from=$place/$name.src
      mkdir -p "$from"
      git archive "$commit" kernels/decode kernels/include tests/cuda_on_cpu | tar x -C "$from"
    fi
    # shellcheck disable=SC2086 # several flags
    compile "$from" "$name" $flags &
    jobs+=($!)
    while (($(jobs -rp | wc -l) >= ${JOBS:-2})); do wait -n; done
  done
  for job in "${jobs[@]}"; do wait "$job"; done
  ls "$place"
}

names() { # LAUNCHER
  if [[ -n ${ONLY:-} ]]; then tr ' ' '\n' <<<"$ONLY"
  elif [[ $1 == few ]]; then tr ' ' '\n' <<<"$FEW"
  else
    echo today
    for variant in "${VARIANTS[@]}"; do echo "${variant%%|*}"; done
  fi
}

argument_of() { # NAME
  local variant name argument
  for variant in "${VARIANTS[@]}"; do
    IFS='|' read -r name _ _ argument <<<"$variant"
    if [[ $name == "$1" && -n $argument ]]; then echo "$argument" && return; fi
  done
  echo 3
}

# One process: a line of times.csv, or an error that goes on to the table.
measure() { # LAUNCHER ROUND NAME
  local launcher=$1 round=$2 name=$3 said time=nan phases=()
  local text=$out/$launcher.$name.text
  if [[ -e $out/$launcher.$name.failed ]]; then return; fi
  if [[ $launcher == persistent && $round == 1 ]]; then phases=("$out/$name.phases.csv"); fi
  said=$(timeout 20 "$place/$name" 8 300 0 "$launcher" "$(argument_of "$name")" "$text" "${phases[@]}" 2>&1) ||
    { echo "$name $launcher failed: $said" | tee "$out/$launcher.$name.failed" >&2; }
  if [[ $said =~ ([0-9.]+)\ us\ a\ token ]]; then time=${BASH_REMATCH[1]}; fi
  echo "$launcher,$round,$name,$time" >>"$out/times.csv"
}

run() {
  local rounds=${1:-5}
  out=${OUT:-$place/out}
  mkdir -p "$out"
  rm -f "$out"/*.failed "$out"/*.text "$out"/*.csv
  echo "launcher,round,variant,token_us" >"$out/times.csv"
  for launcher in persistent few; do
    for ((round = 1; round <= rounds; round++)); do
      for name in $(if ((round % 2)); then names "$launcher"; else names "$launcher" | tac; fi); do measure "$launcher" "$round" "$name"; done
    done
  done
  "$PYTHON" tests/gpu/decode_variants.py "$out"
}

case ${1:-} in
  build) build "${2:-}" ;;
  run) run "${2:-}" ;;
  --help | -h) usage ;;
  *) bad_usage "Say build or run." ;;
esac

#!/usr/bin/env bash
# Capture the hardware counters of a program's kernels with Nsight Compute.
#
# usage: ncu_capture.sh [-n] [--window profiler|all] [--include RANGE]… [--domain NAME] [--plan FILE] [--deep] [--launches N] [--columns LIST]
#                       [--metrics LIST] [--cc X.Y] [--source|--samples] [--cache-control all|none] [--replay kernel|application] [--out DIR] -- COMMAND…
#
#   -n                 print the exact command, run nothing
#   --window WINDOW    profiler: between cudaProfilerStart and cudaProfilerStop (default); all: the whole program
#   --include RANGE    only kernels launched inside this NVTX range, as ncu writes it: gpt2/ or gpt2/*/attn/ (repeatable)
#   --domain NAME      accept ranges of --include and of a plan in this NVTX domain, too
#   --plan FILE        only the launches that a plan chose (RUN/raw/count_plan.json of `python -m analysis.counting`)
#   --deep             every kernel, despite --include, and the catalogue's longer list of metrics
#   --launches N       stop counting after so many launches
#   --columns LIST     comma-separated columns of the catalogue, or stalls: only their metrics
#   --metrics LIST     comma-separated ncu metrics (default: the catalogue's for this GPU)
#   --cc X.Y           compute capability for the catalogue (default: from nvidia-smi; -n without a GPU: 9.0)
#   --source           also sample and count every instruction (section SourceCounters), and keep the sources. The report then
#                      shows the hottest line of each kernel. The instrumented code takes many times as long as the kernel
#   --samples          only sample every instruction, and keep the sources
#   --cache-control C  all: flush the caches before every pass (default); none: leave them warm
#   --replay MODE      kernel (default) or application
#   --out DIR          run folder: DIR/raw/counters.ncu-rep and DIR/captures/ncu.json (default: runs/<time>-capture)
#
# The script changes no GPU clock. ncu.json holds the outcome, also if counters are denied or the capture failed.
# exit: 0 captured, 1 failed or denied, 2 usage, 127 ncu missing
source "$(dirname "$0")/common.sh"

dry='' window=profiler includes=() domain='' plan='' numbers=() deep='' launches='' columns='' metrics='' cc='' source=() samples='' cache=all replay=kernel
out=runs/$(date -u +%Y%m%dT%H%M%SZ)-capture
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=yes && shift ;;
  --deep) deep=yes && shift ;;
  --source) source=(--import-source yes --section SourceCounters) && shift ;;
  --samples) source=(--import-source yes) samples=,group:smsp__pcsamp_warp_stall_reasons && shift ;;
  --launches)
    value "$1" $# && launches=$2 && shift 2
    [[ $launches =~ ^[1-9][0-9]*$ ]] || bad_usage "--launches takes a whole number from 1 on, not '$launches'."
    ;;
  --columns) value "$1" $# && columns=$2 && shift 2 ;;
  --window) value "$1" $# && window=$2 && shift 2 ;;
  --include) value "$1" $# && includes+=("$2") && shift 2 ;;
  --domain) value "$1" $# && domain=$2 && shift 2 ;;
  --plan) value "$1" $# && plan=$2 && shift 2 ;;
  --metrics) value "$1" $# && metrics=$2 && shift 2 ;;
  --cc) value "$1" $# && cc=$2 && shift 2 ;;
  --cache-control) value "$1" $# && cache=$2 && shift 2 ;;
  --replay) value "$1" $# && replay=$2 && shift 2 ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  --) shift && break ;;
  *) bad_usage "Unknown argument $1: the command to capture follows after --." ;;
  esac
done
(($#)) || bad_usage "No command to capture after --."
[[ $window == profiler || $window == all ]] || bad_usage "--window is profiler or all, not $window."
[[ $cache == all || $cache == none ]] || bad_usage "--cache-control is all or none, not $cache."
[[ $replay == kernel || $replay == application ]] || bad_usage "--replay is kernel or application, not $replay."
if [[ -n $plan ]]; then
  [[ -z $deep && ${#includes[@]} == 0 ]] || bad_usage "--plan selects the launches: leave --include and --deep out."
  [[ -s $plan || -n $dry ]] || die 2 "$plan was not found: write it with \`python -m analysis.counting\`."
  if [[ -s $plan ]]; then
    chosen=$("$PYTHON" "$HERE/status.py" selection "$plan") || die 2 "$plan chooses no launch: plan again with a larger --budget."
  else
    chosen="--kernel-id (the launches that $plan will choose)"
  fi
  while read -r option argument; do
    case $option in
    --nvtx-include) includes+=("$argument") ;;
    --replay) replay=$argument ;;
    --columns) if [[ -z $metrics ]]; then columns=${columns:-$argument}; fi ;;
    ?*) numbers+=("$option" "$argument") ;;
    esac
  done <<<"$chosen"
fi
if [[ -n $deep ]]; then includes=(); fi
if [[ -z $metrics ]]; then
  if [[ -z $cc ]]; then
    if gpu=$(find_gpu); then
      cc=${gpu##*, }
    elif [[ -n $dry ]]; then
      cc=9.0
      echo "No GPU to choose metrics for ($gpu): using those of compute capability $cc; ncu_capture.sh takes others by --cc or --metrics." >&2
    else
      die 127 "No GPU to choose metrics for ($gpu): name its compute capability with --cc 9.0, or the metrics with --metrics."
    fi
  fi
  metrics=$(cd "$ROOT" && "$PYTHON" -m analysis.metrics --cc "$cc" ${deep:+--deep} ${columns:+--columns "$columns"}) || die 2 "The metric catalogue has no list for compute capability $cc: name metrics with --metrics."
fi

stem=$out/raw/counters
options=(--nvtx)
for range in ${includes[@]+"${includes[@]}"}; do
  options+=(--nvtx-include "$range")
  if [[ -n $domain ]]; then
    named=${range#[} # torch's own NVTX has no domains: there the domain is part of the names
    # shellcheck disable=SC2001  # ${…//…} cannot keep the character after a slash
    options+=(--nvtx-include "$domain@$range" --nvtx-include "${range%"$named"}$domain:$(sed "s|/\([^/]\)|/$domain:\1|g" <<<"$named")")
  fi
done
options+=(${numbers[@]+"${numbers[@]}"})
if [[ $window == profiler ]]; then options+=(--profile-from-start off); fi
if [[ -n $launches ]]; then options+=(--launch-count "$launches"); fi
options+=(${source[@]+"${source[@]}"} --target-processes all --clock-control none --cache-control "$cache" --replay-mode "$replay")
options+=(--metrics "$metrics$samples")
ncu=$(find_ncu) || ncu=''
command=("${ncu:-ncu}" "${options[@]}" -f -o "$stem" "$@")
status() {
  "$PYTHON" "$HERE/status.py" record "$out/captures/ncu.json" --tool ncu --window "$window" --cache-control "$cache" \
    --replay-mode "$replay" --metrics "$metrics" ${plan:+--planned} ${includes[@]+"${includes[@]/#/--include=}"} "$@"
}

progress() { # ncu prints a line for each kernel: print only a count after every 25th
  local line kernels=0
  while IFS= read -r line || [[ -n $line ]]; do
    if [[ $line != "==PROF== Profiling"* ]]; then
      printf '%s\n' "$line"
    elif ((++kernels % 25 == 0)); then
      echo "   $kernels kernels"
    fi
  done
}

if [[ -n $dry ]]; then
  show "${command[@]}"
  exit 0
fi
mkdir -p "$out/raw" "$out/captures"
if [[ -z $ncu ]]; then
  status --missing -- "${command[@]}" || true
  exit 127
fi
rm -f "$stem.ncu-rep" "$out"/captures/ncu_{raw,ratios,lines}.csv # an earlier capture and its exports
show "${command[@]}"
code=0 started=$SECONDS
"${command[@]}" 2>&1 | tee "$out/raw/ncu.log" | progress || code=${PIPESTATUS[0]}
status --version "$("$ncu" --version 2>&1)" --exit-code "$code" --seconds $((SECONDS - started)) --log "$out/raw/ncu.log" --report "$stem.ncu-rep" -- "${command[@]}"
if [[ $plan -ef $out/raw/count_plan.json && $replay == kernel ]]; then # only kernel replay shows what a replay costs
  run=$(realpath "$out")
  (cd "$ROOT" && "$PYTHON" -m analysis.counting --learn "$run") || true
fi

#!/usr/bin/env bash
# Capture the hardware counters of a program's kernels with Nsight Compute.
#
# usage: ncu_capture.sh [-n] [--window profiler|all] [--include RANGE]… [--domain NAME] [--plan FILE] [--deep] [--launches N] [--columns LIST]
#                       [--metrics LIST] [--cc X.Y] [--source|--samples] [--cache-control all|none] [--replay kernel|application] [--out DIR] -- COMMAND…
#        ncu_capture.sh [-n] --exactly OPTION… [--out DIR] -- COMMAND…
#
#   -n                 print the exact command, run nothing
#   --window WINDOW    profiler: between cudaProfilerStart and cudaProfilerStop (default); all: the whole program
#   --include RANGE    only kernels launched inside this NVTX range, as ncu writes it: gpt2/ or gpt2/*/attn/ (repeatable)
#   --domain NAME      accept ranges of --include and of a plan in this NVTX domain, too
#   --plan FILE        only the launches that a plan chose (RUN/raw/count_plan.json of `python -m analysis.counting`). Afterwards,
#                      `python -m analysis.counting --learn RUN` notes how long they took, for the next plan
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
#   --exactly          the options are those of ncu, as harness/profile/argv.py builds them
#
# The script changes no GPU clock. ncu.json holds the outcome, also if counters are denied or the capture failed.
# exit: 0 captured, 1 failed or denied, 2 usage, 127 ncu missing
source "$(dirname "$0")/common.sh"

capture_of ncu "$@"
stem=$out/raw/counters
ncu=$(find_ncu) || ncu=''
command=("${ncu:-ncu}" "${options[@]}" -f -o "$stem" "${program[@]}")
status() { ours harness.profile.status "$out/captures/ncu.json" --tool ncu "$@"; }

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
rm -f "$stem.ncu-rep" "$out"/captures/ncu_{raw,ratios,lines,source}.csv # an earlier capture and its exports
show "${command[@]}"
code=0 started=$SECONDS
"${command[@]}" 2>&1 | tee "$out/raw/ncu.log" | progress || code=${PIPESTATUS[0]}
status --version "$("$ncu" --version 2>&1)" --exit-code "$code" --seconds $((SECONDS - started)) --log "$out/raw/ncu.log" --report "$stem.ncu-rep" -- "${command[@]}"

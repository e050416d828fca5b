#!/usr/bin/env bash
# Capture a program's timeline with Nsight Systems.
#
# usage: nsys_capture.sh [-n] [--window profiler|all] [--graphs node|graph] [--sample-hz N] [--out DIR] -- COMMAND…
#        nsys_capture.sh [-n] --exactly OPTION… [--out DIR] -- COMMAND…
#
#   -n               print the exact command, run nothing
#   --window WINDOW  profiler: between cudaProfilerStart and cudaProfilerStop (default); all: the whole program
#   --graphs WHAT    record CUDA graphs kernel by kernel (node, default), or each launch as a whole (graph), which slows the program less
#   --sample-hz N    sample the counters of all GPUs so often while the program runs (default 0: never; 10000 loses none). From
#                    5000 on, DRAM traffic is sampled in bytes where nsys allows it, by a set of counters in DIR/raw
#   --out DIR        run folder: DIR/raw/timeline.nsys-rep and DIR/captures/nsys.json (default: runs/<time>-capture)
#   --exactly        the options are those of `nsys profile`, as harness/profile/argv.py builds them
#
# The script changes no GPU clock. If nsys leaves only a .qdstrm, the script runs nsys' importer; NSYS_IMPORTER_LIBS may name
# a folder of libraries that the importer lacks. nsys.json holds the outcome, also if the capture failed.
# exit: 0 captured, 1 failed, 2 usage, 127 nsys missing
source "$(dirname "$0")/common.sh"

capture_of nsys "$@"
stem=$out/raw/timeline
nsys=$(find_nsys) || nsys=''
command=("${nsys:-nsys}" profile "${options[@]}" -o "$stem" -f true "${program[@]}")
status() { ours harness.profile.status "$out/captures/nsys.json" --tool nsys "$@"; }

if [[ -n $dry ]]; then
  show "${command[@]}"
  exit 0
fi
mkdir -p "$out/raw" "$out/captures"
if [[ -z $nsys ]]; then
  status --missing -- "${command[@]}" || true
  exit 127
fi
command[0]=$(nsys_with_host "$nsys")
log=$out/raw/nsys.log started=$SECONDS
capture() {
  rm -rf "$stem".{nsys-rep,qdstrm,sqlite} "$out/captures/nsys" # an earlier capture and its exports
  show "${command[@]}"
  code=0
  "${command[@]}" 2>&1 | tee "$log" || code=${PIPESTATUS[0]}
  import_qdstrm "$nsys" "$stem" 2>&1 | tee -a "$log" || true
}
with_bytes='' own_set=("${command[@]}")
rm -f "$out"/raw/*-bytes.config
if [[ " ${options[*]} " =~ ' --gpu-metrics-frequency='([0-9]+)' ' && " ${options[*]} " != *' --gpu-metrics-set='* ]]; then
  rate=${BASH_REMATCH[1]} cc=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u) || cc=''
  { with_bytes=$(ours harness.profile.sample_set "$nsys" "$out/raw" "$cc" "$rate" 2>&3) || with_bytes=''; } 3>&1
fi
if [[ -n $with_bytes ]]; then command=("${command[@]:0:2}" "$with_bytes" "${command[@]:2}"); fi
capture
if [[ -n $with_bytes ]] && { grep -q TargetProfilingFailed "$log" || { [[ ! -s $stem.nsys-rep ]] && grep -q -e --gpu-metrics-set "$log"; }; }; then
  echo "nsys cannot sample DRAM traffic in bytes here: once more, in whole percents of the peak." >&2
  rm -f "$out"/raw/*-bytes.config
  command=("${own_set[@]}")
  capture
fi
status --version "$("$nsys" --version 2>&1)" --exit-code "$code" --seconds $((SECONDS - started)) --log "$log" --report "$stem.nsys-rep" -- "${command[@]}"

#!/usr/bin/env bash
# Export the captures of a run folder to the CSV files that the analysis reads.
#
# usage: export_csv.sh [-n] [--only nsys|ncu] DIR
#
#   -n           print the exact commands, run nothing
#   --only TOOL  export only this tool's capture, and keep earlier exports of the other tool
#   DIR          run folder: DIR/raw/timeline.nsys-rep → DIR/captures/nsys/<report>.csv, DIR/raw/counters.ncu-rep → DIR/captures/ncu_raw.csv
#
# ncu prints one unit a column. Beside a kernel that moves gigabytes, a small kernel loses its last digits. In base units,
# ratios keep only two decimals. So this script exports counts in base units (ncu_raw.csv) and ratios scaled (ncu_ratios.csv).
# From a capture with --source or --samples it also exports the hottest source lines of each launch (ncu_lines.csv), and the
# source and the instructions of one launch of each kernel (ncu_source.csv; with their PTX if pip installed ncu-report).
# From a program with NCCL it also exports the bytes of the collectives (nccl_calls.csv): no CSV report of nsys has them.
# If nsys sampled counters, it also exports these (samples.parquet), without anything about the machine.
# It removes the host name and the paths of this machine from the exports.
# The script first removes earlier exports of the capture, so that none remain after a failure.
# exit: 0 exported all captures, 1 an export failed, 2 usage or nothing to export, 127 the tool that wrote the capture is missing
source "$(dirname "$0")/common.sh"

# the name of each report, and its name until 2022
reports=(nvtx_pushpop_trace:nvtxpptrace cuda_kern_exec_trace:kernexectrace cuda_gpu_trace:gputrace cuda_api_trace:cudaapitrace
  nvtx_kern_sum:nvtxkernsum cuda_gpu_kern_sum:gpukernsum cuda_api_sum:cudaapisum cuda_gpu_mem_time_sum:gpumemtimesum)
dry='' dir='' only='' worst=0
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes ;;
  --only)
    value "$1" $# && only=$2 && shift
    [[ $only =~ ^(nsys|ncu)$ ]] || bad_usage "--only is nsys or ncu, not $only." ;;
  -*) bad_usage "Unknown argument $1." ;;
  *) [[ -z $dir ]] || bad_usage "One run folder at a time." && dir=$1 ;;
  esac
  shift
done
[[ -n $dir ]] || bad_usage "No run folder given."
[[ -n $dry || -d $dir ]] || die 2 "$dir is not a folder: give a run folder, with raw/ inside."
timeline=$dir/raw/timeline counters=$dir/raw/counters.ncu-rep exports=$dir/raw/exports
finish() { ours harness.profile.exports "$1" "$dir" "${@:2}" || if ((worst == 0)); then worst=1; fi; }
failed() { finish fail --tool "$1" --reason "$2"; }

if ! [[ -n $dry || -s $timeline.nsys-rep || -s $timeline.qdstrm || -s $counters ]]; then
  die 2 "$dir/raw holds neither timeline.nsys-rep nor counters.ncu-rep: capture first, with nsys_capture.sh or ncu_capture.sh."
fi
if [[ -z $dry ]]; then rm -rf "$exports" && mkdir -p "$exports" "$dir/captures"; fi
if [[ $only != ncu && (-n $dry || -s $timeline.nsys-rep || -s $timeline.qdstrm) ]]; then
  nsys=$(find_nsys) || nsys=''
  names=("${reports[@]%:*}")
  if [[ $("${nsys:-false}" stats --help-reports 2>/dev/null || true) == *" gputrace "* ]]; then names=("${reports[@]#*:}"); fi
  stats=("${nsys:-nsys}" stats --report "$(IFS=, && echo "${names[*]}")" --format csv --timeunit nsec --force-export=true
    --output "$exports/nsys" "$timeline.nsys-rep")
  if [[ -n $dry ]]; then
    show "${stats[@]}"
  else
    rm -rf "$dir/captures/nsys"
    if [[ -z $nsys ]]; then
      worst=127 && failed nsys "nsys is missing, so the timeline cannot be exported."
    elif ! reason=$(import_qdstrm "$nsys" "$timeline" 2>&1); then
      failed nsys "$(tail -n 1 <<<"$reason")"
    else
      stats[0]=$(nsys_with_host "$nsys")
      show "${stats[@]}"
      "${stats[@]}" >"$exports/nsys.log" 2>&1 || true # one empty report is no failure: the files decide
      finish nsys --nsys "${stats[0]}"
    fi
  fi
fi
if [[ $only != nsys && (-n $dry || -s $counters) ]]; then
  ncu=$(find_ncu) || ncu=''
  if [[ -z $dry ]]; then rm -f "$dir"/captures/ncu_{raw,ratios,lines,source}.csv; fi
  while read -ra page; do # name, and options
    command=("${ncu:-ncu}" --import "$counters" --csv "${page[@]:1}")
    if [[ -z $dry && -z $ncu ]]; then break; fi
    show "${command[@]}"
    if [[ -z $dry ]]; then "${command[@]}" >"$exports/${page[0]}.csv" || true; fi
  done < <(ours harness.profile.exports pages "$dir" ${dry:+--dry})
  if [[ -n $dry ]]; then exit 0; fi
  if [[ -n $ncu ]]; then finish ncu; else worst=127 && failed ncu "ncu is missing, so the counters cannot be exported."; fi
fi
if [[ -z $dry ]]; then rm -rf "$exports"; fi
exit "$worst"

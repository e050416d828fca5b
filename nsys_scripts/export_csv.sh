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
# From a capture with --source or --samples it also exports the hottest source lines of each launch (ncu_lines.csv).
# From a program with NCCL it also exports the bytes of the collectives (nccl_calls.csv): no CSV report of nsys has them.
# scrub.py removes the host name and the paths of this machine from the exports.
# The script first removes earlier exports of the capture, so that none remain after a failure.
# exit: 0 exported all captures, 1 an export failed, 2 usage or nothing to export, 127 the tool that wrote the capture is missing
source "$(dirname "$0")/common.sh"

# the name of each report, and its name until 2022
reports=(nvtx_pushpop_trace:nvtxpptrace cuda_kern_exec_trace:kernexectrace cuda_gpu_trace:gputrace cuda_api_trace:cudaapitrace
  nvtx_kern_sum:nvtxkernsum cuda_gpu_kern_sum:gpukernsum cuda_api_sum:cudaapisum cuda_gpu_mem_time_sum:gpumemtimesum)
dry='' dir='' only=''
while (($#)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  -n) dry=yes ;;
  --only)
    value "$1" $# && only=$2
    [[ $only == nsys || $only == ncu ]] || bad_usage "--only is nsys or ncu, not $only."
    shift
    ;;
  -*) bad_usage "Unknown argument $1." ;;
  *)
    [[ -z $dir ]] || bad_usage "One run folder at a time."
    dir=$1
    ;;
  esac
  shift
done
[[ -n $dir ]] || bad_usage "No run folder given."
[[ -n $dry || -d $dir ]] || die 2 "$dir is not a folder: give a run folder, with raw/ inside."
timeline=$dir/raw/timeline counters=$dir/raw/counters.ncu-rep exports=$dir/raw/exports

sampled=''
if [[ $only != ncu ]]; then
  nsys=$(find_nsys || echo nsys)
  names=("${reports[@]%:*}")
  if [[ $("$nsys" stats --help-reports 2>/dev/null || true) == *" gputrace "* ]]; then names=("${reports[@]#*:}"); fi
  nsys_command=("$nsys" stats --report "$(IFS=, && echo "${names[*]}")" --format csv --timeunit nsec --force-export=true
    --output "$exports/nsys" "$timeline.nsys-rep")
fi
if [[ $only != nsys ]]; then
  ncu_command=("$(find_ncu || echo ncu)" --import "$counters" --csv --page raw)
  lines_command=("${ncu_command[0]}" --import "$counters" --csv --page source --print-source 'cuda,sass')
  captured=$("$PYTHON" "$HERE/status.py" metrics "$dir/captures/ncu.json")
  { read -r counts && read -r ratios || true; } <<<"$captured"
  if grep -qs -e '"--import-source"' "$dir/captures/ncu.json"; then sampled=yes; fi
fi
if [[ -n $dry ]]; then
  if [[ $only != ncu ]]; then show "${nsys_command[@]}"; fi
  if [[ $only == nsys ]]; then exit 0; fi
  show "${ncu_command[@]}" --print-units base ${counts:+--metrics "$counts"}
  if [[ -n $ratios ]]; then show "${ncu_command[@]}" --metrics "$ratios"; fi
  if [[ -n $sampled ]]; then show "${lines_command[@]}"; fi
  exit 0
fi

worst=0
fail() { # TOOL CODE SENTENCE: print why an export failed, and write it to the tool's status file for the report
  echo "$(basename "$0"): $3" >&2
  "$PYTHON" "$HERE/status.py" fail "$dir/captures/$1.json" --tool "$1" --reason "$3"
  if (($2 > worst)); then worst=$2; fi
}

page() { # NAME OPTIONS…: one page of the counters as captures/NAME.csv
  show "${ncu_command[@]}" "${@:2}"
  if "${ncu_command[@]}" "${@:2}" >"$exports/$1.csv" && grep -q '^"ID",' "$exports/$1.csv"; then
    "$PYTHON" "$HERE/scrub.py" "$exports/$1.csv" --to "$dir/captures" || fail ncu 1 "$1.csv could not be written."
  else
    fail ncu 1 "ncu --import gave no table: $(grep -m 1 '^==ERROR==' "$exports/$1.csv" || echo 'nothing was printed')"
  fi
}

hottest_lines() { # export the page of sources, reduced to the hottest lines, as captures/ncu_lines.csv
  show "${lines_command[@]}"
  if "${lines_command[@]}" | (cd "$ROOT" && exec "$PYTHON" -m analysis.hot_lines) >"$exports/ncu_lines.csv"; then
    mv "$exports/ncu_lines.csv" "$dir/captures/ncu_lines.csv"
  else
    fail ncu 1 "the page of sources could not be exported, so the hottest lines are not known."
  fi
}

graph_recordings() { # export where the kernels of CUDA graphs were recorded: only the SQLite file of nsys stats has it
  local kept=$dir/captures/nsys/graph_kernels.csv database
  if [[ -s $timeline.sqlite ]] && grep -qs GraphLaunch "$dir/captures/nsys/cuda_api_sum.csv"; then
    database=$(realpath "$timeline.sqlite")
    (cd "$ROOT" && exec "$PYTHON" -m analysis.graph_kernels "$database") >"$exports/graph_kernels.csv" || true
    if [[ -s $exports/graph_kernels.csv ]]; then mv "$exports/graph_kernels.csv" "$kept"; fi
  fi
}

nccl_calls() { # SQLITE: print NCCL's calls of an SQLite file of nsys
  (file=$(realpath "$1") && cd "$ROOT" && exec "$PYTHON" -m analysis.nccl_calls "$file") 2>"$exports/nccl.log"
}

calls_of_nccl() { # SQLITE: export NCCL's calls as captures/nsys/nccl_calls.csv; the file of nsys stats lacks their bytes
  local calls=$exports/nccl_calls.csv payloads=$exports/payloads.sqlite
  [[ -s $1 ]] || return 0
  if ! nccl_calls "$1" >"$calls"; then
    echo "export_csv.sh: the bytes of collectives are not known: $(tail -n 1 "$exports/nccl.log")" >&2
  elif [[ -s $calls ]]; then
    local command=("${nsys_command[0]}" export --type sqlite --include-blobs=true --force-overwrite=true --output "$payloads" "$timeline.nsys-rep")
    show "${command[@]}"
    if "${command[@]}" >"$exports/payloads.log" 2>&1; then nccl_calls "$payloads" >"$calls" || nccl_calls "$1" >"$calls"; fi
    rm -f "$payloads"
    mv "$calls" "$dir/captures/nsys/nccl_calls.csv"
  fi
}

if ! [[ -s $timeline.nsys-rep || -s $timeline.qdstrm || -s $counters ]]; then
  die 2 "$dir/raw holds neither timeline.nsys-rep nor counters.ncu-rep: capture first, with nsys_capture.sh or ncu_capture.sh."
fi
rm -rf "$exports"
mkdir -p "$exports" "$dir/captures"
if [[ $only != ncu && (-s $timeline.nsys-rep || -s $timeline.qdstrm) ]]; then
  rm -rf "$dir/captures/nsys"
  if ! [[ -x ${nsys_command[0]} ]]; then
    fail nsys 127 "nsys is missing, so the timeline cannot be exported."
  elif ! reason=$(import_qdstrm "${nsys_command[0]}" "$timeline" 2>&1); then
    fail nsys 1 "$(tail -n 1 <<<"$reason")"
  else
    nsys_command[0]=$(nsys_with_host "${nsys_command[0]}")
    show "${nsys_command[@]}"
    "${nsys_command[@]}" >"$exports/nsys.log" 2>&1 || true # one empty report is no failure: the files decide
    find "$exports" -name 'nsys_*.csv' -empty -delete
    if compgen -G "$exports/nsys_*.csv" >/dev/null; then
      if "$PYTHON" "$HERE/scrub.py" "$exports"/nsys_*.csv --strip nsys_ --to "$dir/captures/nsys"; then
        graph_recordings
        "$PYTHON" "$HERE/status.py" exported "$dir/captures/nsys.json"
        calls_of_nccl "$timeline.sqlite"
      else
        fail nsys 1 "the exports of the timeline could not be written."
      fi
    else
      cat "$exports/nsys.log" >&2
      fail nsys 1 "nsys stats wrote no report from timeline.nsys-rep."
    fi
  fi
fi
if [[ $only != nsys && -s $counters ]]; then
  rm -f "$dir"/captures/ncu_{raw,ratios,lines}.csv
  if ! [[ -x ${ncu_command[0]} ]]; then
    fail ncu 127 "ncu is missing, so the counters cannot be exported."
  else
    # without a list of the captured metrics, export everything scaled: ratios matter more than last digits
    if [[ -n $counts ]]; then page ncu_raw --print-units base --metrics "$counts"; else page ncu_raw; fi
    if [[ -n $ratios ]]; then page ncu_ratios --metrics "$ratios"; fi
    if [[ -n $sampled ]]; then hottest_lines; fi
  fi
fi
rm -rf "$exports"
exit "$worst"

#!/usr/bin/env bash
# Run a program without a profiler and record when each of its NVTX ranges opens and closes.
#
# usage: bare.sh [-n] [--limit SECONDS] [--out DIR] -- COMMAND…
#
#   -n               print the exact commands, run nothing
#   --limit SECONDS  end the program after so many seconds, and keep the ranges recorded until then
#   --out DIR        run folder (default: runs/<time>-capture). The script writes DIR/raw/bare/ (records, one file a process),
#                    DIR/captures/bare_ranges.csv (above 1 MB packed as .csv.xz) and DIR/captures/bare.json
#
# A small NVTX injection library (bare_nvtx.c) records the ranges. It takes 0.1 µs a range in C and 0.1 to 0.4 µs in Python
# (reports/bare-bench/results.csv: two Xeon cores at a load of 10.8, Python 3.11.7, nvtx 0.2.17), and needs neither CUDA
# nor root. The first use compiles it with CC into ${XDG_CACHE_HOME:-~/.cache}/kernel-ledger/. The program keeps its own
# input and output. Its records survive kill -9.
# exit: 0 recorded, 1 the program failed or recorded nothing, 2 usage, 127 no C compiler
source "$(dirname "$0")/common.sh"

dry='' limit='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-capture
while (($#)); do
  case $1 in
  -h | --help) usage ;;
  -n) dry=yes && shift ;;
  --limit) value "$1" $# && limit=$2 && shift 2 ;;
  --out) value "$1" $# && out=$2 && shift 2 ;;
  --) shift && break ;;
  *) bad_usage "Unknown argument $1: the command to run follows after --." ;;
  esac
done
(($#)) || bad_usage "No command to run after --."
[[ -z $limit || $limit =~ ^[0-9]*[1-9][0-9]*$ ]] || bad_usage "--limit is a number of seconds, not $limit."

source=$ROOT/harness/instrument/bare_nvtx.c compiler=${CC:-cc} records=$out/raw/bare
[[ $out == /* ]] || records=$PWD/$records # the program may change its folder
key=$({ cat "$source" "${source%/*}/nvtx.h" && uname -m; } | sha256sum | cut -c 1-16)
library=${XDG_CACHE_HOME:-$HOME/.cache}/kernel-ledger/bare_nvtx-$key.so
build=("$compiler" -std=gnu11 -O2 -shared -fPIC -fvisibility=hidden -pthread -o "$library.$$" "$source")
command=(env "NVTX_INJECTION64_PATH=$library" "KERNEL_LEDGER_BARE=$records" "$@")
if [[ -n $limit ]]; then
  foreground=()
  if [[ -t 0 ]]; then foreground=(--foreground); fi # without it, the kernel stops a program that reads the terminal
  command=(timeout ${foreground[@]+"${foreground[@]}"} -k 10 "$limit" "${command[@]}")
fi
finish() { # ARGUMENT… of harness/instrument/bare_ranges.py
  ours harness.instrument.bare_ranges --out "$out" --version "$key" "${@:1}" -- "${program[@]}"
}
program=("$@")

if [[ -n $dry ]]; then
  if [[ ! -e $library ]]; then show "${build[@]}" && show mv "$library.$$" "$library"; fi
  show "${command[@]}"
  show "$PYTHON" -m harness.instrument.bare_ranges --out "$out" -- "$@"
  exit 0
fi
command -v -- "$1" >/dev/null || die 2 "$1 was not found, or it is not executable."
mkdir -p "$out/captures" "$out/raw"
rm -rf "$records" "$out"/captures/bare_ranges.csv{,.xz} # of an earlier run
mkdir "$records"
if [[ ! -e $library ]]; then
  if ! command -v "$compiler" >/dev/null; then
    finish --status missing --unbuilt "There is no C compiler ($compiler) to build the recorder of ranges with." "Install one (Debian, Ubuntu: apt-get install gcc), or name it with CC." || exit 127
  fi
  mkdir -p "$(dirname "$library")"
  show "${build[@]}"
  if ! said=$("${build[@]}" 2>&1); then
    rm -f "$library.$$"
    finish --unbuilt "The C compiler could not build the recorder of ranges: $(head -n 1 <<<"$said")" "Repair the compiler, or name another one with CC." || exit 1
  fi
  mv "$library.$$" "$library"
fi
show "${command[@]}"
code=0 started=$SECONDS
"${command[@]}" || code=$?
finish --exit-code "$code" --seconds $((SECONDS - started)) ${limit:+--limit "$limit"}

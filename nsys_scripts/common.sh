#!/usr/bin/env bash
# Shared by the scripts of this folder: strict mode, help, and the search for NVIDIA's tools. Source it, do not run it.
#
# NSIGHT_SEARCH_ROOT  prefix of /opt/nvidia and /usr/local in the search for the tools
# NSYS_IMPORTER_LIBS  a folder of extra libraries (libdw.so.1, libelf.so.1 …) for nsys' importer
# PYTHON              the interpreter (default: .venv/bin/python, else python3)
set -euo pipefail
export LC_ALL=C # nsys and ncu print 628032 as 628.032 under de_DE

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export HERE=$ROOT/nsys_scripts
if [[ -z ${PYTHON:-} ]]; then
  PYTHON=python3
  if [[ -x $ROOT/.venv/bin/python ]]; then PYTHON=$ROOT/.venv/bin/python; fi
fi
export PYTHON

# The header comment of the script is its help.
usage() { sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0"; exit; }

die() { # CODE SENTENCE
  printf '%s: %s\n' "$(basename "$0")" "$2" >&2
  exit "$1"
}

bad_usage() { die 2 "$1 See $(basename "$0") --help."; }

# The value of an option, or a usage error that names it.
value() { # OPTION COUNT_OF_ARGUMENTS_LEFT
  (($2 > 1)) || bad_usage "$1 needs a value."
}

# Run a Python program of this project, from any folder.
ours() { # MODULE ARGUMENT…
  PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} "$PYTHON" -m "$@"
}

# Print a command. With `dry` (-n), it can be pasted into a shell: its lines end in \, also in lists such as that of metrics.
# Without, such a word is cut.
show() {
  local word line='' piece quote
  for word in "$@"; do
    if [[ -z ${dry:-} ]] && ((${#word} > 200)); then word=${word:0:80}…; fi
    quote=\'
    if [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then quote=''; else word="'${word//\'/\'\\\'\'}'"; fi
    if [[ -n ${dry:-} && -n $line ]] && ((${#line} + ${#word} > 118)); then
      printf '%s\\\n' "$line"
      line='  '
    fi
    line+="$word "
    while [[ -n ${dry:-} ]] && ((${#line} > 118)) && [[ ${line:0:117} =~ .*[,|] ]]; do
      piece=${BASH_REMATCH[0]}
      line=$quote${line#"$piece"}
      printf '%s\\\n' "$piece$quote"
    done
  done
  printf '%s\n' "$line"
}

# Print the newest candidate that exists and answers --version (the CUDA toolkit has wrappers for tools that it lacks).
usable() {
  local path
  while read -r path; do
    if "$path" --version >/dev/null 2>&1; then
      printf '%s\n' "$path"
      return 0
    fi
  done < <(for path in "$@"; do if [[ -x $path ]]; then printf '%s\n' "$path"; fi; done | sort -rV)
  return 1
}

find_nsys() {
  local r=${NSIGHT_SEARCH_ROOT:-}
  usable "$(command -v nsys)" ||
    usable "$r"/opt/nvidia/nsight-systems{,-cli}/*/{bin,target-linux-*}/nsys ||
    usable "$r"/usr/local/cuda*/bin/nsys "$r"/usr/local/cuda*/nsight-systems-*/{bin,target-linux-*}/nsys ||
    usable "$r"/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys \
      "$r"/usr/local/cuda*/nsight-compute-*/host/target-linux-*/nsys
}

find_ncu() {
  local r=${NSIGHT_SEARCH_ROOT:-}
  usable "$(command -v ncu)" ||
    usable "$r"/usr/local/cuda*/bin/ncu "$r"/usr/local/cuda*/nsight-compute-*/ncu ||
    usable "$r"/opt/nvidia/nsight-compute/*/ncu
}

# Print nsys' importer, which turns the raw data that nsys leaves (.qdstrm) into a report (.nsys-rep).
find_importer() { # NSYS
  local home path
  # It is beside nsys. Debian's package has it in /usr/lib/nsight-systems, and nsys in /usr/lib/<machine>/nsight-systems.
  home=$(dirname "$(dirname "$(readlink -f "$1")")")
  for path in "$home"/host-linux-*/QdstrmImporter "$home"/linux-desktop-glibc_*/QdstrmImporter \
    "$(dirname "$(dirname "$home")")"/nsight-systems/host-linux-*/QdstrmImporter; do
    if [[ -x $path ]]; then
      printf '%s\n' "$path"
      return 0
    fi
  done
  return 1
}

importer_path() { # IMPORTER → its LD_LIBRARY_PATH
  printf '%s' "$(dirname "$1")${NSYS_IMPORTER_LIBS:+:$NSYS_IMPORTER_LIBS}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

importer_lacks() { # IMPORTER → the libraries that the loader does not find
  { LD_LIBRARY_PATH=$(importer_path "$1") ldd "$1" 2>/dev/null || true; } | awk '/not found/ { print $1 }' | sort -u
}

package_of() { # LIBRARY → the Debian and Ubuntu package
  case $1 in
  libdw.so.1) echo libdw1 ;;
  libelf.so.1) echo libelf1 ;;
  libssh.so | libssh.so.4) echo libssh-4 ;;
  libz.so.1) echo zlib1g ;;
  libbz2.so.1*) echo libbz2-1.0 ;;
  liblzma.so.5) echo liblzma5 ;;
  libzstd.so.1) echo libzstd1 ;;
  libglib-2.0.so.0) echo libglib2.0-0 ;;
  libdbus-1.so.3) echo libdbus-1-3 ;;
  libnss3.so) echo libnss3 ;;
  libGL.so.1) echo libgl1 ;;
  libEGL.so.1) echo libegl1 ;;
  libOpenGL.so.0) echo libopengl0 ;;
  libxkbcommon.so.0) echo libxkbcommon0 ;;
  libstdc++.so.6) echo libstdc++6 ;;
  *) echo "the package that has $1" ;;
  esac
}

# Print one sentence on the libraries that the importer lacks, and the packages that have them; nothing if it lacks none.
importer_fix() { # IMPORTER
  local libraries packages=() library
  libraries=$(importer_lacks "$1")
  if [[ -z $libraries ]]; then return 0; fi
  for library in $libraries; do packages+=("$(package_of "$library")"); done
  printf 'The importer of nsys lacks %s: install %s (apt-get install), or set NSYS_IMPORTER_LIBS to a folder that has it.\n' \
    "$(paste -sd ' ' <<<"$libraries")" "${packages[*]}"
}

# The nsys inside Nsight Compute looks for its importer in ../host-linux-x64, but the folder is ../linux-desktop-glibc_*.
# This function makes a tree of links under build/ in which the folder has the expected name; the installation stays as it
# is. It copies the programs, because each program finds its folder from the real path of its file.
nsys_with_host() { # NSYS → an nsys that finds its importer
  local bin home importer tree new file
  bin=$(dirname "$(readlink -f "$1")")
  home=$(dirname "$bin")
  if [[ $(basename "$home") != host ]] || compgen -G "$home/host-linux-*" >/dev/null || ! importer=$(find_importer "$1"); then
    printf '%s\n' "$1"
    return 0
  fi
  tree=$ROOT/build/nsys-$(basename "$(dirname "$home")")
  if [[ ! -d $tree ]]; then
    mkdir -p "$ROOT/build"
    new=$(mktemp -d "$ROOT/build/nsys.XXXXXX")
    cp -rs "$bin" "$new/"
    cp -rs "$(dirname "$importer")" "$new/host-linux-x64"
    while read -r file; do
      cp --remove-destination "$(readlink -f "$file")" "$file"
    done < <(find -L "$new" -type f -perm -u+x ! -name '*.so*')
    mv -T "$new" "$tree"
  fi
  if [[ -n ${NSYS_IMPORTER_LIBS:-} ]]; then ln -sf "$(realpath "$NSYS_IMPORTER_LIBS")"/*.so* "$tree/host-linux-x64/"; fi
  usable "$tree/$(basename "$bin")/nsys" || printf '%s\n' "$1"
}

# Make sure that STEM.nsys-rep exists: if nsys left only STEM.qdstrm, run the importer.
import_qdstrm() { # NSYS STEM
  if [[ -s $2.nsys-rep || ! -s $2.qdstrm ]]; then return 0; fi
  local importer fix
  if ! importer=$(find_importer "$1"); then
    echo "nsys left only $(basename "$2").qdstrm, and it has no QdstrmImporter: install Nsight Systems, which has one." >&2
    return 1
  fi
  fix=$(importer_fix "$importer")
  if [[ -n $fix ]]; then
    echo "$fix" >&2
    return 1
  fi
  show "$importer" -i "$2.qdstrm" -o "$2.nsys-rep"
  LD_LIBRARY_PATH=$(importer_path "$importer") "$importer" -i "$2.qdstrm" -o "$2.nsys-rep"
}

# Print name and compute capability of the first GPU, such as "NVIDIA H200, 9.0". Without a GPU, print why, and return 1.
find_gpu() {
  local answer
  if ! command -v nvidia-smi >/dev/null; then
    echo "nvidia-smi is not on PATH"
    return 1
  fi
  if ! answer=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>&1) || [[ $answer != *,* ]]; then
    echo "nvidia-smi says: $(head -n 1 <<<"$answer")"
    return 1
  fi
  head -n 1 <<<"$answer"
}

# Read the command line of a capture script into dry, out, the tool's options and the program.
# shellcheck disable=SC2034  # the scripts read them
capture_of() { # TOOL ARGUMENT…
  local tool=$1 exactly='' given=() said
  shift
  dry='' out=runs/$(date -u +%Y%m%dT%H%M%SZ)-capture options=()
  while (($#)) && [[ $1 != -- ]]; do
    case $1 in
    -h | --help) usage ;;
    -n) dry=yes ;;
    --out) value "$1" $# && out=$2 && shift ;;
    --exactly) exactly=yes ;;
    *) given+=("$1") ;;
    esac
    shift
  done
  program=("${@:2}")
  ((${#program[@]})) || bad_usage "No command to capture after --."
  if [[ -z $exactly ]]; then
    said=$(ours harness.profile.argv "$tool" ${dry:+-n} ${given[@]+"${given[@]}"}) || exit $?
    mapfile -t options <<<"$said"
  else
    options=("${given[@]}")
  fi
}

# Run one step of a driver: print the title, the command and the seconds. With `dry` (-n), only print the command; our own
# scripts print theirs.
step() { # TITLE COMMAND… (if `limit` is set, it ends the command after so many seconds)
  local started=$SECONDS code=0
  if [[ -n $dry ]]; then
    shift
    if [[ $1 == "$HERE"/* ]]; then "$1" -n "${@:2}"; else show "$@"; fi
    return 0
  fi
  printf '\n== %s\n' "$1"
  shift
  if [[ $1 != "$HERE"/* ]]; then show "$@"; fi # our scripts print what they run
  ${limit:+timeout -k 10 "$limit"} "$@" || code=$?
  echo "   $((SECONDS - started)) s"
  return "$code"
}

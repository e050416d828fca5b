#!/usr/bin/env bash
# Make sure that what a target of the Makefile needs is there, and install it if not.
#
# usage: setup.sh venv|base|harness|tests|census|need-gpu|announce
#
#   venv      the virtual environment
#   base      what reports need
#   harness   torch too, and what the tests need; torch's build follows the GPU
#   tests     the same; without a virtual environment, pytest and its like are checked, too
#   census    NVIDIA's disassembler
#   need-gpu  only look for a GPU
#   announce  say which GPU there is, and check CMD, RUN and ARGS of `make profile`
#
# VENV    the virtual environment; empty: check the packages of PYTHON, and install nothing
# PYTHON  the interpreter that makes the virtual environment
# exit: 0 all there, 1 pip failed, 2 no GPU, a package is missing or wrong usage, 127 no Python
PYTHON=${PYTHON:-python3} VENV=${VENV-.venv}
source "$(dirname "$0")/../nsys_scripts/common.sh"
cd "$ROOT"

# Without a GPU, torch's CPU build saves gigabytes. PyPI has none under this name; other indexes and local wheels may.
cpu=torch==2.13.0+cpu cuda=torch==2.13.0
py=$VENV/bin/python pins=$VENV/.pins

say() { # CODE SENTENCE: end without the name of this script, which the user did not call
  echo "$2" >&2
  exit "$1"
}

pip() {
  PIP_CONSTRAINT=$(realpath "$pins") "$py" -m pip install -qq --disable-pip-version-check "$@" ||
    say 1 "pip could not install the packages: without internet, 'make … VENV= PYTHON=python3' uses the interpreter at hand."
}

check_python() {
  command -v "$PYTHON" >/dev/null || say 127 "There is no $PYTHON here: install Python 3.11 or newer, or name one with PYTHON=…"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    say 2 "$("$PYTHON" --version) is too old: install Python 3.11 or newer, or name one with PYTHON=…"
}

make_venv() {
  [[ ! -x $py ]] || return 0
  check_python
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    say 2 "$PYTHON has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv), or use VENV= for the interpreter as it is."
  echo "Setting up $VENV …"
  "$PYTHON" -m venv "$VENV"
}

fresh() { [[ -e $1 && ! pyproject.toml -nt $1 && ! .ci/requirements.lock -nt $1 ]]; }

install_base() {
  make_venv
  ! fresh "$VENV/.base" || return 0
  echo "Installing what reports need …"
  # the versions of the lock, without its hashes, which pip wants of every package or of none
  sed -e '/--hash=/d' -e 's/ \\$//' .ci/requirements.lock >"$pins"
  pip -e .
  touch "$VENV/.base"
}

install_harness() { # once more when a GPU comes or goes: with one, torch's CPU build is of no use
  install_base
  local machine=cpu
  if find_gpu >/dev/null; then machine=gpu; fi
  if fresh "$VENV/.harness" && [[ $(cat "$VENV/.harness") == "$machine" ]]; then return 0; fi
  echo "Installing what the GPT-2 harness and the tests need (torch: some minutes) …"
  if [[ $machine == cpu ]]; then
    "$py" -c 'import torch' 2>/dev/null || (pip "$cpu") 2>/dev/null || true
  elif "$py" -c 'import sys, torch; sys.exit(torch.version.cuda is not None)' 2>/dev/null; then
    pip --force-reinstall --no-deps "$cuda"
  fi
  pip -e '.[harness,dev]'
  echo "$machine" >"$VENV/.harness"
}

announce() { # CMD_FROM: where make has CMD from
  local gpu here=yes
  [[ ${CMD_FROM:-} != "command line" || ${CMD:-} == *[![:space:]]* ]] || say 2 "CMD is empty: give the program to profile, or leave CMD out to profile GPT-2."
  [[ ${CMD:-} != *[![:space:]]* ]] || bash -nc "command=($CMD)" 2>/dev/null ||
    say 2 "CMD is one program with its arguments: put |, &&, ; or > into a script, or give CMD=\"bash -c '…'\"."
  gpu=$(find_gpu) || here=''
  if [[ -n $here ]]; then
    echo "NVIDIA GPU found: $gpu."
  elif [[ ${CMD:-} == *[![:space:]]* && " ${ARGS:-} " != *" -n "* ]]; then
    say 2 "CMD needs an NVIDIA GPU, and there is none here: $gpu. ARGS=-n prints the commands."
  elif [[ -n ${CMD:-}${RUN:-} ]]; then
    echo "No NVIDIA GPU found: $gpu."
  else
    echo "No NVIDIA GPU found: $gpu. GPT-2 runs on the CPU for its layer times; the full report is of the committed run."
  fi
}

case ${1:-} in
-h | --help) usage ;;
announce) announce ;;
need-gpu) find_gpu >/dev/null || say 2 "This needs an NVIDIA GPU, and there is none here: $(find_gpu || true)." ;;
venv) make_venv ;;
base | harness | tests | census)
  if [[ -z $VENV ]]; then
    check_python
    case $1 in harness) extras=(harness) ;; tests) extras=(harness dev) ;; *) extras=() ;; esac
    exec "$PYTHON" harness/packages.py ${extras[@]+"${extras[@]}"}
  elif [[ $1 == base ]]; then
    install_base
  elif [[ $1 == census ]]; then
    install_base
    fresh "$VENV/.census" || { echo "Installing NVIDIA's disassembler …" && pip -e '.[census]' && touch "$VENV/.census"; }
  else
    install_harness
  fi
  ;;
*) bad_usage "Unknown argument ${1:-}." ;;
esac

#!/usr/bin/env bash
# Say what this machine has for profiling, and how to get what it lacks.
#
# usage: doctor.sh
#
# One line each: GPU, driver, nsys, its importer, ncu, counter permission, CUDA compiler, C++ compiler, Python packages,
# and the Hugging Face package `kernels`, whose name is that of a folder of this project. Changes nothing.
# exit: 0, whatever it finds
source "$(dirname "$0")/common.sh"
case ${1:-} in
'') ;;
-h | --help) usage && exit 0 ;;
*) bad_usage "Unknown argument $1." ;;
esac

ok() { printf '%-20s ok       %s\n' "$1" "$2"; }
lacks() { printf '%-20s missing  %s\n' "$1" "$2"; }
numbers() { "$@" --version 2>&1 | grep -Eo '[0-9]+(\.[0-9]+)+' | sort -t. -k1,1nr | head -n 1 || true; }

if gpu=$(find_gpu); then
  ok GPU "$gpu"
  ok driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
else
  lacks GPU "$gpu; profiling needs an NVIDIA GPU, reports and tests do not"
  lacks driver "comes with the GPU: install NVIDIA's driver (nvidia.com/drivers or your distribution)"
fi

if nsys=$(find_nsys); then
  ok nsys "$(numbers "$nsys") ($nsys)"
  if ! importer=$(find_importer "$nsys"); then
    lacks "nsys importer" "no QdstrmImporter beside nsys: needed only if nsys leaves a .qdstrm; Nsight Systems has one"
  elif fix=$(importer_fix "$importer") && [[ -n $fix ]]; then
    lacks "nsys importer" "$fix"
  else
    ok "nsys importer" "$importer"
  fi
else
  lacks nsys "install Nsight Systems (in the CUDA toolkit and in Nsight Compute), or put nsys on PATH"
  lacks "nsys importer" "comes with nsys"
fi

if ncu=$(find_ncu); then ok ncu "$(numbers "$ncu") ($ncu)"; else lacks ncu "install Nsight Compute (in the CUDA toolkit), or put ncu on PATH"; fi

parameters=${NSIGHT_SEARCH_ROOT:-}/proc/driver/nvidia/params
if [[ ! -r $parameters ]]; then
  lacks "counter permission" "not known without NVIDIA's driver"
elif ((EUID == 0)) || grep -q '^RmProfilingAdminOnly: 0' "$parameters"; then
  ok "counter permission" "this user may read GPU counters"
else
  lacks "counter permission" "ERR_NVGPUCTRPERM: run as root, or set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module and reboot"
fi

if nvcc=$(usable "$(command -v nvcc)" /usr/local/cuda*/bin/nvcc); then ok nvcc "$(numbers "$nvcc")"; else lacks nvcc "install the CUDA toolkit 12 or 13; only the CUDA variants of the kernels need it"; fi
if cxx=$(usable "$(command -v c++)" "$(command -v g++)"); then ok "C++ compiler" "$(numbers "$cxx")"; else lacks "C++ compiler" "apt-get install g++"; fi

if absent=$("$PYTHON" "$HERE/packages.py" harness 2>&1) && [[ -z $absent ]]; then
  ok "Python packages" "$("$PYTHON" --version)"
else
  while read -r line; do lacks "Python packages" "$line"; done <<<"$absent"
fi
if hf=$("$PYTHON" -c 'from importlib.metadata import version; print(version("kernels"))' 2>/dev/null); then
  lacks "kernels clash" "Hugging Face kernels $hf is installed and hides behind our kernels/: pip uninstall kernels, or load no official weights"
else
  ok "kernels clash" "Hugging Face's package kernels is not installed"
fi

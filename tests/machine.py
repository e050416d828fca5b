"""Fake a machine for the scripts: nsys, ncu, nvidia-smi and an interpreter that record how they are called."""

import json
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "nsys_scripts"
DRIVERS = {path.name: path for path in sorted((ROOT / "studies").glob("*/*.sh"))}

# Cases of a fake nsys: it says its version, and runs the program. A program that fails leaves no report.
NSYS_PROFILES = """--version) echo "NVIDIA Nsight Systems version 2025.3.1.90-253135822842v0" ;;
profile)
  while (($#)); do
    if [[ $1 == -o ]]; then stem=$2; fi
    if [[ $1 == -f ]]; then shift 2 && break; fi
    shift
  done
  "$@" || exit $?
  echo data > "$stem.${NSYS_LEAVES:-nsys-rep}"
  ;;
"""
FAKE_NSYS = (
    f"""#!/usr/bin/env bash
echo "nsys $*" >> "$CALLS"
case $1 in
{NSYS_PROFILES}"""
    + """stats)
  while (($#)); do case $1 in --output) base=$2 ;; --report) reports=$2 ;; esac; shift; done
  [[ -z ${NSYS_STATS_FAILS:-} ]] || { echo "ERROR: no importer" >&2; exit 1; }
  for report in ${reports//,/ }; do
    case $report in
    cuda_gpu_trace | gputrace) cat > "${base}_$report.csv" <<'END'
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name
1000,500,7,132,1,1,256,1,1,32,0.0,0.0,,,,,NVIDIA H200 (0),1,7,"void f({lambda at /home/someone/src/softmax.cu:3}, "q", int)"
END
      ;;
    *_trace | cuda_gpu_mem_time_sum) : > "${base}_$report.csv" ;;
    *) printf '%s\\n' 'Time (%),Name' '1.0,"void f({lambda at /home/someone/src/softmax.cu:3}, "q", int)"' > "${base}_$report.csv" ;;
    esac
  done
  ;;
esac
"""
)

FAKE_NCU = """#!/usr/bin/env bash
echo "ncu $*" >> "$CALLS"
case $1 in
--version) printf 'NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)\\n' ;;
--import)
  [[ -z ${NCU_IMPORT_FAILS:-} ]] || { echo "==ERROR== Failed to load the report"; exit 1; }
  printf '"ID","Process ID","Process Name","Host Name","Kernel Name"\\n"","","","",""\\n'
  printf '"0","17","/home/someone/bin/python3.12","gpu-box-7","f(""a"", /home/someone/src/x.cu)"\\n'
  ;;
*)
  case ${NCU_DOES:-work} in
  denied) echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access GPU counters"; exit 1 ;;
  none) echo "==WARNING== No kernels were profiled."; exit 0 ;;
  error) echo "==ERROR== Cannot write /home/someone/runs/x"; exit 9 ;;
  esac
  while (($#)); do
    if [[ $1 == -o ]]; then stem=$2; shift 2; break; fi
    shift
  done
  "$@" || exit $?
  echo data > "$stem.ncu-rep"
  ;;
esac
"""

FAKE_SMI = """#!/usr/bin/env bash
case "$*" in
*name,compute_cap*) echo "NVIDIA H200, 9.0" ;;
*compute_cap*) echo 9.0 ;;
*driver_version*) echo 580.159.04 ;;
*) echo "GPU 0: NVIDIA H200" ;;
esac
"""

FAKE_IMPORTER = """#!/usr/bin/env bash
echo "importer $*" >> "$CALLS"
while (($#)); do if [[ $1 == -o ]]; then echo data > "$2"; fi; shift; done
"""

# Takes the place of the interpreter: records the commands of harness and report, runs all others.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "python $*" >> "$CALLS"
case "$*" in
"-m harness.run"*)
  if [[ "$*" == *"${HARNESS_FAILS:-never}"* ]]; then echo "HarnessError: no memory in $PWD/harness/run.py" && exit 4; fi
  ;;
"-m harness.roofs"*)
  [[ -z ${ROOFS_FAIL:-} ]] || { echo "error: no ceilings.json, so reports have datasheet roofs only" >&2 && exit 3; }
  mkdir -p "$4" && echo '{"kind": "ceilings", "schema_version": 1, "roofs": [], "measured": "2026-11-23T09:00Z"}' > "$4/ceilings.json"
  echo '{"kind": "manifest", "schema_version": 1, "gpu": {"name": "NVIDIA H200", "sm_count": 132, "card": "ab12"}}' > "$4/manifest.json"
  ;;
"-m kernels.build"*) ;;
"-m studies.ladder.measure --mode measure"*)
  while (($#)); do if [[ $1 == --run ]]; then run=$2; fi; shift; done
  for each in ${LADDER_RUNS-RUN-softmax}; do mkdir -p "${each/RUN/$run}/captures" && echo op > "${each/RUN/$run}/captures/points.csv"; done
  exit "${LADDER_ENDS:-0}"
  ;;
"-m studies.ladder.measure"*) ;;
"-m studies.runs"*) echo "reports/first-$3" ;;
"-m studies.ladder.build --columns"*) echo "duration_ns${4:+,dram_read_bytes}" ;;
"-m studies.ladder.build"*) echo "points: some" ;;
analysis/report.py*)
  while (($#)); do if [[ $1 == --out ]]; then out=$2; fi; shift; done
  mkdir -p "$out"
  check='{"name": "copy: DRAM bytes read", "unit": "byte", "expected": 4.0, "measured": 4.0, "passed": true}'
  printf '{"trust": {"status": "%s", "sentence": "s", "checks": [%s]}}' "${TRUST:-trusted}" "$check" > "$out/report.json"
  echo "the report and three findings"
  ;;
*) exec REAL_PYTHON "$@" ;;
esac
"""


def pasted(printed: str) -> str:
    """Return printed commands as a shell reads them: a line that ends in \\ goes on in the next one."""
    return re.sub(r"\\\n(?:  )?", "", printed)


class Machine:
    """A machine whose PATH has only the fakes of a test, and the system's ordinary tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.calls.touch()
        self.scripts = folder / "checkout" / "nsys_scripts"  # a copy, because the scripts write under their own root
        shutil.copytree(SCRIPTS, self.scripts, ignore=shutil.ignore_patterns("__pycache__"))
        for package in ("analysis", "harness"):
            (self.scripts.parent / package).symlink_to(ROOT / package)
        for driver in DRIVERS.values():
            copy = self.scripts.parent / driver.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(driver, copy)
        tools = folder / "tools"
        tools.mkdir()
        for name in ORDINARY_TOOLS.split():
            if path := shutil.which(name):
                (tools / name).symlink_to(path)
        self.environment = {
            "PATH": f"{self.bin}:{tools}",
            "PYTHON": sys.executable,
            "CALLS": str(self.calls),
            "NSIGHT_SEARCH_ROOT": str(folder / "system"),
            "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def put(self, path: str, text: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(target.stat().st_mode | stat.S_IXUSR)
        return target

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self.path(script)), *arguments],
            cwd=self.scripts.parent,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,  # against a hang; a busy machine takes its time
        )
        done.stdout = pasted(done.stdout)
        return done

    def path(self, script: str) -> Path:
        return self.scripts.parent / (DRIVERS.get(script) or SCRIPTS / script).relative_to(ROOT)

    def json(self, path: str) -> dict:
        return json.loads((self.scripts.parent / path).read_text())


ORDINARY_TOOLS = """
    bash basename dirname readlink realpath date mkdir rm cp mv ln find cat tail head grep sed awk sort tr tee timeout ldd env
    mktemp paste cut sha256sum uname true false chmod sh xz
"""

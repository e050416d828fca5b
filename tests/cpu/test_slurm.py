"""The scripts for Slurm under a real Slurm of two nodes on this machine, with stand-ins for nsys, ncu and launchers."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report import build
from tests.machine import FAKE_NCU, FAKE_SMI, NSYS_PROFILES, ROOT
from tests.rank_programs import Program

TOOLS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol")
LACKING = [tool for tool in TOOLS if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(
        bool(LACKING) or os.geteuid() != 0,
        reason="no Slurm here, or not root: apt-get install slurmctld slurmd slurm-client munge",
    ),
]

CONF = """ClusterName=ledger
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={first}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SlurmctldTimeout=5
SlurmdTimeout=3
MessageTimeout=3
TCPTimeout=1
KillWait=1
WaitTime=0
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
NodeName=n[0-1] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{second}-{third}] CPUs=1 RealMemory=50
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# It runs the program, and exports what the test prepared for this node or rank. A program that fails leaves no report.
NSYS = (
    f"""#!/usr/bin/env bash
case $1 in
{NSYS_PROFILES}"""
    + """export)
  while (($#)); do if [[ $1 == --output ]]; then out=$2; fi; shift; done
  cp "$FIXTURES/node${RANK:-$SLURM_NODEID}.sqlite" "$out"
  ;;
stats) exit 1 ;;
esac
"""
)
TORCHRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
  case $1 in
  --nnodes) nodes=$2 ;; --node-rank) node=$2 ;; --nproc-per-node) count=$2 ;; --master-addr) export MASTER_ADDR=$2 ;;
  --no-python) shift && break ;;
  esac
  shift 2
done
export WORLD_SIZE=$((nodes * count))
for ((at = 0; at < count; at++)); do LOCAL_RANK=$at RANK=$((node * count + at)) "$@" || exit $?; done
"""
MPIRUN = """#!/usr/bin/env bash
count=$2
shift 4
for ((at = 0; at < count; at++)); do OMPI_COMM_WORLD_RANK=$at "$@" & done
wait
"""
APPTAINER = """#!/usr/bin/env bash
echo "apptainer $*" >> "$CALLS"
shift 6 && exec "${@:2}"
"""
PROGRAM = 'echo "rank $RANK of ${WORLD_SIZE:-?} at ${MASTER_ADDR:-?} $MODULE_WAS" >> "$CALLS"'


def free_ports(count: int) -> list[int]:
    """Return ports in a row that nobody uses."""
    for first in range(21_000, 30_000, 7):
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return list(range(first, first + count))
    raise OSError("no free ports")


class Cluster:
    """Two nodes on this machine, and a folder with the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.calls = folder, folder / "bin", folder / "calls"
        self.bin.mkdir()
        (folder / "state").mkdir()
        self.calls.touch()
        stand_ins = {"nsys": NSYS, "ncu": FAKE_NCU, "nvidia-smi": FAKE_SMI, "torchrun": TORCHRUN, "mpirun": MPIRUN}
        for name, text in (stand_ins | {"apptainer": APPTAINER}).items():
            (self.bin / name).write_text(text, encoding="utf-8")
            (self.bin / name).chmod(0o755)
        first, second, third = free_ports(3)
        conf = folder / "slurm.conf"
        conf.write_text(
            CONF.format(
                host=socket.gethostname().partition(".")[0], folder=folder, first=first, second=second, third=third
            ),
            encoding="utf-8",
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "COV_", "PYTEST"))},
            "PATH": f"{self.bin}:{os.environ['PATH']}:/usr/sbin:/sbin", "SLURM_CONF": str(conf), "CALLS": str(self.calls),
            "PYTHON": sys.executable, "KERNEL_LEDGER": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self.pids: list[Path] = []

    def start(self) -> None:
        """Start munge, the controller and both nodes, and wait until the nodes are idle."""
        key = self.folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        munge = self.folder / "munge"
        self._daemon(
            ["munged", "--force", f"--socket={munge}.sock", f"--key-file={key}", f"--log-file={munge}.log",
             f"--pid-file={munge}.pid", f"--seed-file={munge}.seed"], munge.with_suffix(".pid"),
        )  # fmt: skip
        self._daemon(["slurmctld"], self.folder / "slurmctld.pid")
        for node in ("n0", "n1"):
            self._node(node)
        self.wait_idle()

    def _node(self, name: str) -> None:
        self._daemon(["slurmd", "-N", name], self.folder / f"slurmd-{name}.pid")

    def _daemon(self, command: list[str], pid: Path) -> None:
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=30)
        self.pids.append(pid)

    def wait_idle(self) -> None:
        """Wait until both nodes are idle; a node that died starts again."""
        for _ in range(300):
            said = self.run("sinfo", "-h", "-o", "%D %t").stdout.split()
            if said == ["2", "idle"]:
                return
            for node in ("n0", "n1"):
                if not _lives(self.folder / f"slurmd-{node}.pid"):
                    self._node(node)
            time.sleep(0.1)
        raise TimeoutError(f"the nodes are {said}")

    def run(self, *command: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment | more, cwd=cwd, capture_output=True, text=True, encoding="utf-8", timeout=120
        )

    def submit(self, script: str, *words: str, options: tuple[str, ...] = (), **more: str) -> tuple[int, str]:
        """Run a batch script to its end; return its exit code and what it printed."""
        log = self.folder / "job.log"
        log.unlink(missing_ok=True)
        answer = self.run(
            "sbatch", "--parsable", f"--output={log}", *options, str(ROOT / "nsys_scripts/slurm" / script), *words,
            cwd=self.folder, **more,
        )  # fmt: skip
        job = answer.stdout.strip()
        for _ in range(600):  # `sbatch --wait` looks only every few seconds
            told = self.run("scontrol", "-o", "show", "job", job).stdout
            if told and not re.search("JobState=(PENDING|CONFIGURING|RUNNING|COMPLETING|SUSPENDED)", told):
                break
            time.sleep(0.1)
        codes = [int(code) for code in re.findall(r" ExitCode=(\d+):", told)]
        return max(codes, default=1), log.read_text(encoding="utf-8") if log.exists() else answer.stderr

    def stop(self) -> None:
        for pid in reversed(self.pids):
            if _lives(pid):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def _lives(pid: Path) -> bool:
    try:
        os.kill(int(pid.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="ledger-slurm-", dir="/tmp"))  # a socket's path is short
    one = Cluster(folder)
    try:
        one.start()
        yield one
    finally:
        one.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ready(cluster: Cluster) -> Cluster:
    cluster.wait_idle()
    cluster.calls.write_text("", encoding="utf-8")
    return cluster


@pytest.fixture
def fixtures(tmp_path: Path) -> Path:
    """The captures of two nodes with two ranks each, of which the last one computes longer."""
    Program("ddp", ranks=4, slow=3, late=2_000_000).save(tmp_path, ((0, 0.0), (9_000_000, 1e-5)))
    return tmp_path


def report_of(run: Path, out: Path) -> str:
    return (build([run], out), (out / "report.md").read_text(encoding="utf-8"))[1]


@pytest.mark.parametrize("launch", ["torchrun", "srun"])
def test_two_nodes_become_one_report(ready: Cluster, fixtures: Path, tmp_path: Path, launch: str) -> None:
    run = tmp_path / "run"
    code, said = ready.submit(
        "profile.sbatch", "--run", str(run), "--launch", launch, "--ranks", "2", "--", "bash", "-c", PROGRAM,
        options=("-N", "2"), FIXTURES=str(fixtures),
    )  # fmt: skip
    assert code == 0, said
    assert f"make report RUN='{run}'" in said
    assert sorted(re.findall(r"rank (\d) of 4", ready.calls.read_text(encoding="utf-8"))) == ["0", "1", "2", "3"]
    assert sorted(path.name for path in (run / "captures").iterdir()) == [
        "node0.sqlite", "node1.sqlite", "nsys-node0.json", "nsys-node1.json",
    ]  # fmt: skip
    text = report_of(run, tmp_path / "report")
    assert "Rank 3 has 2 ms more work on its GPU than the mean of the others" in text


def test_mpirun_starts_an_nsys_for_each_rank(ready: Cluster, tmp_path: Path) -> None:
    Program("ddp", ranks=2).save(tmp_path, ((0, 0.0), (5_000, 0.0)))
    run = tmp_path / "run"
    code, said = ready.submit(
        "profile.sbatch", "--run", str(run), "--launch", "mpirun", "--", "bash", "-c", PROGRAM,
        options=("-N", "2"), FIXTURES=str(tmp_path),
    )  # fmt: skip
    assert code == 0, said
    assert {path.name for path in (run / "captures").glob("*.sqlite")} == {"rank0.sqlite", "rank1.sqlite"}
    assert "rank 1" in report_of(run, tmp_path / "report")


def test_a_rank_that_is_missing_is_a_sentence_of_the_report(ready: Cluster, tmp_path: Path) -> None:
    Program("ddp", ranks=3).save(tmp_path, ((0, 0.0), (5_000, 0.0), (9_000, 0.0)))
    run = tmp_path / "run"
    program = "if [[ $RANK == 1 ]]; then exit 7; fi"
    code, said = ready.submit(
        "profile.sbatch", "--run", str(run), "--launch", "mpirun", "--ranks", "3", "--", "bash", "-c", program,
        options=("-N", "1"), FIXTURES=str(tmp_path),
    )  # fmt: skip
    assert code == 1
    assert "rank1 left no capture: look at" in said
    text = report_of(run, tmp_path / "report")
    assert "rank1 left no capture: it died, or its program did not end" in text
    assert "the captures of 1 of 3 ranks" in text


def test_a_node_that_dies_leaves_the_others_and_a_sentence(ready: Cluster, fixtures: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    program = (
        'if [[ $SLURM_NODEID == 1 ]]; then kill -9 "$(cat "$DYING")"; step=$PPID; '
        'while [[ $(cat /proc/$step/comm) != slurmstepd* ]]; do step=$(awk "{print \\$4}" /proc/$step/stat); done; '
        'kill -9 "$step"; kill -9 0; fi'
    )
    code, said = ready.submit(
        "profile.sbatch", "--run", str(run), "--launch", "srun", "--ranks", "2", "--", "bash", "-c", program,
        options=("-N", "2"), FIXTURES=str(fixtures), DYING=str(ready.folder / "slurmd-n1.pid"),
    )  # fmt: skip
    assert code == 1, said
    assert "node1 left no capture" in said
    assert {path.name for path in (run / "captures").glob("*.sqlite")} == {"node0.sqlite"}
    text = report_of(run, tmp_path / "report")
    assert "node1 left no capture: it died, or its program did not end" in text
    assert "the captures of 2 of 4 ranks" in text


def test_a_container_and_ncu_of_one_rank(ready: Cluster, fixtures: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, said = ready.submit(
        "profile.sbatch", "--run", str(run), "--ranks", "2", "--container", "image.sif", "--ncu-rank", "2", "--",
        "bash", "-c", PROGRAM, options=("-N", "2"), FIXTURES=str(fixtures),
    )  # fmt: skip
    calls = ready.calls.read_text(encoding="utf-8")
    assert code == 0, said
    assert (
        len(re.findall(r"^apptainer exec --nv", calls, re.MULTILINE)) == 8
    )  # four ranks under nsys, and four with one under ncu
    counted = [line for line in calls.splitlines() if line.startswith("ncu --") and "-o " in line]
    assert len(counted) == 1
    assert "--kernel-name regex:^(?!nccl)" in counted[0]
    assert "--launch-count 200" in counted[0]
    assert (run / "captures/ncu.json").exists()


def test_modules_that_a_node_lacks_are_one_sentence(ready: Cluster, fixtures: Path, tmp_path: Path) -> None:
    code, said = ready.submit(
        "profile.sbatch", "--run", str(tmp_path / "run"), "--modules", "cuda", "--", "true", options=("-N", "1"),
        FIXTURES=str(fixtures), BASH_ENV="",
    )  # fmt: skip
    assert code == 1
    assert "This node has no environment modules: leave --modules out." in said


def test_modules_are_loaded_before_the_program(ready: Cluster, fixtures: Path, tmp_path: Path) -> None:
    functions = tmp_path / "functions.sh"
    functions.write_text('module() { export MODULE_WAS="$*"; }\n', encoding="utf-8")
    code, said = ready.submit(
        "profile.sbatch", "--run", str(tmp_path / "run"), "--modules", "cuda/12.4 nccl", "--", "bash", "-c", PROGRAM,
        options=("-N", "1"), FIXTURES=str(fixtures), BASH_ENV=str(functions),
    )  # fmt: skip
    assert code == 0, said
    assert "load cuda/12.4 nccl" in ready.calls.read_text(encoding="utf-8")


def test_an_array_job_captures_each_setting(ready: Cluster, fixtures: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text("BATCH=8\nBATCH=16 DTYPE=bf16\n", encoding="utf-8")
    out = tmp_path / "sweep"
    program = 'echo "batch $BATCH $DTYPE" >> "$CALLS"'
    ready.submit(
        "sweep.sbatch", "--settings", str(settings), "--out", str(out), "--", "bash", "-c", program,
        options=("--array=1-2",), FIXTURES=str(fixtures),
    )  # fmt: skip
    assert sorted(ready.calls.read_text(encoding="utf-8").splitlines()) == ["batch 16 bf16", "batch 8 "]
    assert (out / "1/raw/timeline.nsys-rep").exists()
    assert (out / "2/captures/nsys.json").exists()


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("profile.sbatch", ["--launch", "ssh", "--", "x"], "--launch is torchrun, srun or mpirun, not ssh."),
        ("profile.sbatch", ["--ranks", "two", "--", "x"], "--ranks is a number of ranks, not two."),
        ("profile.sbatch", [], "No command to capture after --."),
        ("sweep.sbatch", ["--", "x"], "--settings names no file that can be read."),
        ("sweep.sbatch", ["--settings", "/etc/hostname", "--", "x"], "Submit it as an array: sbatch --array=1-1."),
    ],
)
def test_a_usage_error_is_one_sentence(ready: Cluster, script: str, words: list[str], said: str) -> None:
    answer = ready.run("bash", str(ROOT / "nsys_scripts/slurm" / script), *words, cwd=ready.folder)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_dry_runs_print_the_commands(ready: Cluster) -> None:
    answer = ready.run(
        "bash", str(ROOT / "nsys_scripts/slurm/profile.sbatch"), "-n", "--ncu-rank", "0", "--", "app", cwd=ready.folder,
        SLURM_NNODES="3",
    )  # fmt: skip
    assert answer.returncode == 0
    assert answer.stdout.count("srun --nodes=3 --ntasks=3 --ntasks-per-node=1") == 2


def test_elsewhere_than_in_the_checkout_it_says_so(ready: Cluster, tmp_path: Path) -> None:
    answer = ready.run(
        "bash", str(ROOT / "nsys_scripts/slurm/profile.sbatch"), "--", "x", cwd=tmp_path, KERNEL_LEDGER=str(tmp_path)
    )
    assert answer.returncode == 2
    assert "is not the checkout: submit from there, or set KERNEL_LEDGER to its path." in answer.stderr

"""Our set of counters for nsys: made from an installed one, and nsys' own where that cannot be."""

import sqlite3
from pathlib import Path

import pytest

from harness.profile import sample_set
from tests.cpu.test_profile import only_run, profile
from tests.machine import FAKE_NSYS, Machine

pytestmark = pytest.mark.slow

SET = """# a set
version: 5
metricSets:
- alias: gh100
  name: General
  chips: [GH100]
  metrics:
  - name: SMs Active
    id: sm__cycles_active
    subMetrics:
    - name: Throughput %
      suffix: .avg.pct_of_peak_sustained_elapsed
"""
HERE = "bin/GpuMetrics/gh100.config"


def option(machine: Machine, capability: str = "9.0", rate: str = "10000") -> int:
    return sample_set.main([str(machine.bin / "nsys"), str(machine.folder), capability, rate])


@pytest.mark.parametrize("place", [HERE, "target-linux-x64/GpuMetrics/gh100.config"])
def test_our_set_is_nsys_own_with_two_metrics_more(
    gpu_machine: Machine, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_machine.put(place, SET)
    assert option(gpu_machine) == 0
    path = gpu_machine.folder / "gh100-bytes.config"
    assert capsys.readouterr().out == f"--gpu-metrics-set=file:{path}\n"
    text = path.read_text()
    assert text.startswith(SET.replace("alias: gh100", "alias: gh100-bytes"))
    assert [line.split()[-1] for line in text.splitlines() if "id: " in line][1:] == [
        "dram__bytes_read",
        "dram__bytes_write",
    ]
    assert text.count("suffix: .sum\n") == 2


@pytest.mark.parametrize(
    ("text", "capability", "rate", "why"),
    [
        ("", "9.0", "10000", "no file of its set gh100"),
        (SET.replace("version: 5", "version: 2"), "9.0", "10000", "another format"),
        (SET.replace("alias: gh100", "alias: gh100-ct"), "9.0", "10000", "does not hold this set alone"),
        (SET + SET.partition("metricSets:\n")[2].replace("gh100", "gh200"), "9.0", "10000", "does not hold this set alone"),
        (SET + "  displayRows: []\n", "9.0", "10000", "does not end with its metrics"),
        (SET, "9.0\n12.0", "10000", "have no known set"),
        (SET, "", "10000", "compute capability unknown"),
        (SET, "9.0", "1000", "can pass 32 bits below 5,000 Hz"),
    ],
)  # fmt: skip
def test_why_nsys_takes_its_own_set_is_one_sentence(
    gpu_machine: Machine, text: str, capability: str, rate: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text:
        gpu_machine.put(HERE, text)
    assert option(gpu_machine, capability, rate) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert why in said.err
    assert said.err.startswith("The samples show DRAM traffic in whole percents: ")
    assert not list(gpu_machine.folder.glob("*.config"))


# An nsys that, with our set, refuses; or runs the program and fails to sample; or says nothing and samples nothing.
FAILS = {
    "refuses": 'echo "Illegal --gpu-metrics-set argument: file."; exit 1',
    "fails": '"${@: -1}"; echo "Status: TargetProfilingFailed"; for s; do [[ $b != -o ]] || echo data > "$s.nsys-rep"; b=$s; done; exit 0',
}


def sampled_with(machine: Machine, fails: str = "") -> list[str]:
    """Put an nsys that fails with our set; return the lines that it is called with for a capture."""
    broken = f'if [[ "$*" == *--gpu-metrics-set=file:* ]]; then {fails}; fi\n' if fails else ""
    machine.put("bin/nsys", FAKE_NSYS.replace("case $1 in", broken + "case $1 in", 1))
    machine.put(HERE, SET)
    answer = machine.run("nsys_capture.sh", "--sample-hz", "10000", "--out", "r", "--", "true")
    assert answer.returncode == 0, answer.stderr
    assert ("once more, in whole percents" in answer.stderr) == bool(fails)
    assert machine.json("r/captures/nsys.json")["status"] == "ok"
    return [line for line in machine.calls.read_text().splitlines() if line.startswith("nsys profile")]


def test_a_capture_takes_our_set_and_records_no_folder(gpu_machine: Machine) -> None:
    (call,) = sampled_with(gpu_machine)
    made = gpu_machine.scripts.parent / "r/raw/gh100-bytes.config"
    assert made.is_file()
    assert f"--gpu-metrics-set=file:{made} " in call
    assert "--gpu-metrics-set=file:r/raw/gh100-bytes.config" in gpu_machine.json("r/captures/nsys.json")["command"]


@pytest.mark.parametrize("how", FAILS)
def test_nsys_runs_once_more_with_its_own_set(gpu_machine: Machine, how: str) -> None:
    ours, own = sampled_with(gpu_machine, FAILS[how])
    assert "--gpu-metrics-set=file:" in ours
    assert "--gpu-metrics-set" not in own
    assert "--gpu-metrics-frequency=10000" in own
    assert not list((gpu_machine.scripts.parent / "r/raw").glob("*.config"))


def test_a_set_that_samples_nothing_without_a_word_is_noticed(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    assert sample_set.lost(tmp_path) == ""
    (raw / "gh100-bytes.config").touch()
    assert sample_set.lost(tmp_path) == ""
    database = raw / "timeline.sqlite"
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE StringIds (id INT)")
    assert sample_set.lost(tmp_path) == "gh100"
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE GPU_METRICS (value INT)")
    db.close()
    assert sample_set.lost(tmp_path) == ""
    database.write_bytes(b"no database" * 100)
    assert sample_set.lost(tmp_path) == ""


def test_a_profile_samples_once_more_where_our_set_gave_nothing(gpu_machine: Machine) -> None:
    """The export of the first capture has no samples; the second one takes nsys' own set by its name."""
    empty = gpu_machine.folder / "empty.sqlite"
    with sqlite3.connect(empty) as db:
        db.execute("CREATE TABLE StringIds (id INT)")
    db.close()
    leaves = f'stats) for s; do [[ $s != *.nsys-rep ]] || cp {empty} "${{s%.nsys-rep}}.sqlite"; done; set -- "$@"\n'
    gpu_machine.put("bin/nsys", FAKE_NSYS.replace("stats)\n", leaves, 1))
    gpu_machine.put(HERE, SET)
    answer = profile(gpu_machine, "--no-counters", "--no-auto-ranges", "--", "./app")
    ours, own = (line for line in gpu_machine.calls.read_text().splitlines() if line.startswith("nsys profile"))
    assert "--gpu-metrics-set=file:" in ours
    assert "--gpu-metrics-set=gh100 " in own
    assert "nsys sampled nothing with bytes of DRAM: once more" in answer.stdout
    assert not list((only_run(gpu_machine) / "raw").glob("*.config"))

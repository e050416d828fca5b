"""Several benchmarks in one session of a GPU, with programs that only say what a benchmark says."""

import re
import sys

import pytest

from harness import bench
from tests.gpu import plain_loop, together

BENCHMARK = """
import sys, time
name, folder = sys.argv[1:]
def note(word):
    with open(f"{folder}/notes", "a") as stream:
        stream.write(f"{word} {name}\\n")
time.sleep(30 if name == "slow" else 0)
for word in ("checked", "timed"):
    print(f"\\n{word}", flush=True)
    sys.stdin.readline()
    note(f"begins {word}")
    time.sleep(30 if name == "hangs" else 0.05)
    note(f"ends {word}")
sys.exit(name == "fails")
"""


def together_run(tmp_path, monkeypatch, *names, **limits):
    """Programs that do as a benchmark does; the exit code, and what they noted in its order."""

    def command(job, out, seconds):
        return [sys.executable, "-c", BENCHMARK, job.name, str(tmp_path)]

    monkeypatch.setattr(together.Job, "command", command)
    monkeypatch.setattr(together, "PATIENCE", 1.2)
    jobs = [together.Job(name, "gelu", (), 1) for name in names]
    code = together.run(jobs, tmp_path / "out", limits.get("seconds", 20.0), limits.get("checks", 20.0), grace=0.3)
    notes = tmp_path / "notes"
    return code, notes.read_text().splitlines() if notes.is_file() else []


def test_ops_are_checked_side_by_side_and_timed_alone(tmp_path, monkeypatch):
    code, notes = together_run(tmp_path, monkeypatch, "a", "b")
    assert code == 0
    assert notes == [
        f"{what} {stage} {name}" for stage in ("checked", "timed") for name in "ab" for what in ("begins", "ends")
    ]
    assert "timed" in (tmp_path / "out" / "a" / "log.txt").read_text()


def test_a_program_that_fails_or_hangs_stops_no_other(tmp_path, monkeypatch):
    code, notes = together_run(tmp_path, monkeypatch, "fails", "hangs", "c")
    assert code == 1
    assert "ends timed c" in notes
    assert "ends timed fails" in notes
    assert "ends checked hangs" not in notes


def test_an_op_that_is_not_checked_in_time_waits_for_its_turn(tmp_path, monkeypatch, capsys):
    code, notes = together_run(tmp_path, monkeypatch, "slow", "b", checks=0.3)
    assert code == 1  # it never came so far
    assert "slow is not checked in time" in capsys.readouterr().out
    assert "ends timed b" in notes


def test_the_command_reckons_its_seconds(capsys):
    assert together.main(["-n"]) == 0
    *programs, last = capsys.readouterr().out.splitlines()
    assert [line.split("--time ")[1].split()[0] for line in programs] == list(together.OPS)
    assert re.fullmatch(r"# about 45 s of checks side by side, then \d+ s: \d+ s of the GPU", last)
    assert together.main(["-n", "--tuned"]) == 0
    text = capsys.readouterr().out
    for name in ("matmul-compile_tuned", "matmul-cublaslt", "matmul-triton", "attention-flex_tuned", "layernorm-liger"):
        assert f"runs/together/{name}" in text
    with pytest.raises(SystemExit, match="OP 'gelo' is unknown"):
        together.main(["-n", "gelo"])


def test_the_plain_loop_runs_behind_the_benchmark_of_the_same_process(tmp_path, monkeypatch):
    called = []

    def benchmark(arguments):
        called.append(arguments)
        (tmp_path / "bench.csv").write_text("op\ngelu\n")
        return 0

    ratio = plain_loop.Ratio("gelu", "fp32", "b8", "v02", "torch", 2.0, 2.1)
    monkeypatch.setattr(bench, "main", benchmark)
    monkeypatch.setattr(plain_loop, "ratios", lambda rows: [ratio] * len(rows))
    assert plain_loop.time_and_loop("gelu", tmp_path, ["--dtype", "fp32"]) == 1  # 5 % apart
    assert called == [["gelu", "--out", str(tmp_path), "--no-gpt2", "--dtype", "fp32"]]
    assert (tmp_path / "plain_loop.csv").read_text().splitlines()[1] == "gelu,fp32,b8,v02,torch,2.0000,2.1000,0.0500"


def test_the_program_of_an_op_gives_the_benchmark_its_arguments_in_order(tmp_path, monkeypatch):
    job = together.Job("softmax", "softmax", ("--without", "triton_tuned"), 1)
    given = []
    monkeypatch.setattr(plain_loop, "time_and_loop", lambda op, out, more: given.append((op, out, more)) or 0)
    monkeypatch.setattr(sys, "argv", job.command(tmp_path, 190.0)[2:])
    assert plain_loop.main() == 0
    assert given == [("softmax", tmp_path / "softmax", ["--pause", "--seconds", "190", "--without", "triton_tuned"])]

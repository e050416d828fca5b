"""The run CLI, the workloads, the rows of ops.csv and the doctor, on a CPU with a small model."""

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import doctor, op_rows, run
from harness.gpt2 import GPT2Config
from harness.ranges import RecordingTracer
from harness.workloads import find_workload

SMALL = ["--config", "n_layer=2,n_embd=32,n_head=4,n_positions=32,vocab_size=61"]
SHAPES = ["--workloads", "prefill_b1_t8,decode_b1_ctx8"]
ROOT = Path(__file__).resolve().parents[2]


def read_ops(folder: Path) -> list[dict[str, str]]:
    with (folder / "ops.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# Modes -------------------------------------------------------------------------------------------------------


def test_cpu_mode_writes_ranges_timing_ops_and_manifest(tmp_path: Path) -> None:
    out = tmp_path / "captures"
    assert run.main(["--mode", "cpu", "--out", str(out), *SMALL, *SHAPES]) == 0
    names = ["cpu_ranges.csv", "dataflow.csv", "manifest.json", "ops.csv", "timing.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    with (out / "cpu_ranges.csv").open(encoding="utf-8") as file:
        ranges = list(csv.DictReader(file))
    leaves = {row["range"] for row in read_ops(out)}
    parents = {row["path"].rpartition("/")[0] for row in ranges}
    assert leaves == {row["path"] for row in ranges} - parents
    assert max(int(row["ordinal"]) for row in read_ops(out)) == run.CPU_REPEATS - 1
    timing = read_json(out / "timing.json")
    assert timing["kind"] == "timing"
    assert [step["range"] for step in timing["steps"]] == ["gpt2/prefill", "gpt2/decode"]
    assert all(step["gpu_ns"] is None and step["wall_ns"]["p50"] > 0 for step in timing["steps"])
    manifest = read_json(out / "manifest.json")
    assert manifest["gpu"] is None
    assert manifest["workloads"][1]["context"] == 8
    assert str(tmp_path) not in json.dumps(manifest)


def test_bare_mode_times_both_models_and_generation(tmp_path: Path) -> None:
    arguments = ["--mode", "bare", "--device", "cpu", "--softmax-fused", "v03_causal", "--samples", "3"]
    assert run.main([*arguments, "--new-tokens", "4", "--out", str(tmp_path), *SMALL, *SHAPES]) == 0
    timing = read_json(tmp_path / "timing.json")
    roots = ["gpt2/prefill", "gpt2/decode", "gpt2_fused/prefill", "gpt2_fused/decode"]
    assert [step["range"] for step in timing["steps"]] == roots
    assert {root: rate["new_tokens"] for root, rate in timing["tokens_per_s"].items()} == {"gpt2": 4, "gpt2_fused": 4}
    assert all(rate["tokens_equal_gpt2"] and rate["p50"] > 0 for rate in timing["tokens_per_s"].values())
    assert "ratio_to_gpt2" not in timing["tokens_per_s"]["gpt2"]
    ratio = timing["tokens_per_s"]["gpt2_fused"]["ratio_to_gpt2"]
    assert 0 < ratio["p5"] <= ratio["p50"] <= ratio["p95"]
    assert timing["seconds"] > 0
    softmax = [row for row in read_ops(tmp_path) if row["range"] == "gpt2_fused/prefill/h.0/attn/softmax"]
    assert softmax[0]["symbols"].startswith("softmax_v03_causal")
    assert not [row for row in read_ops(tmp_path) if row["range"].startswith("gpt2_fused/prefill/h.0/attn/mask")]


def plan_and_write(out: Path, *arguments: str, keep: bool = True) -> None:
    plan = run.make_plan(["--mode", "bare", "--device", "cpu", "--out", str(out), *SMALL, *arguments])
    steps = plan.steps(plan.models())
    run._write_conditions(plan, steps, run._rows(plan, steps, []), None, keep=keep)


@pytest.mark.parametrize(
    ("arguments", "replaced"),
    [
        (["--workloads", "prefill_b1_t8,decode_b1_ctx8"], False),
        (["--workloads", "decode_b1_ctx8"], False),  # described there as well
        (["--workloads", "prefill_b1_t16"], True),
        (["--workloads", "prefill_b1_t8", "--seed", "5"], True),
        (["--workloads", "prefill_b1_t8", "--dtype", "bfloat16"], True),
        (["--workloads", "prefill_b1_t8", "--softmax-fused", "v02_fused"], True),
    ],
)
def test_a_capture_replaces_what_describes_another_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], replaced: bool
) -> None:
    plan_and_write(tmp_path, *SHAPES)
    (tmp_path / "timing.json").write_text("{}")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    plan_and_write(tmp_path, *arguments)
    assert ({path.name: path.read_bytes() for path in tmp_path.iterdir()} != before) is replaced
    assert (tmp_path / "timing.json").exists() is not replaced
    assert ("replacing manifest.json and ops.csv" in capsys.readouterr().err) is replaced


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"workloads": 3}'])
def test_a_broken_manifest_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    plan_and_write(tmp_path, *SHAPES)
    assert read_json(tmp_path / "manifest.json")["kind"] == "manifest"
    assert len(read_ops(tmp_path)) > 0


def test_the_window_runs_steps_bench_and_selftest_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The captured program on a CPU: a recording tracer for NVTX, a fake profiler for the window's ends."""
    events: list[str] = []

    class Cudart:
        def cudaProfilerStart(self) -> int:  # noqa: N802  CUDA's name
            return events.append("start") or 0

        def cudaProfilerStop(self) -> int:  # noqa: N802
            return events.append("stop") or 0

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    plan = run.make_plan(
        ["--mode", "bare", "--device", "cpu", "--softmax-fused", "v02_fused", "--out", str(tmp_path), *SMALL, *SHAPES]
    )
    steps = plan.steps(plan.models())
    launches = [
        run.Launch(path, lambda: None)
        for path in (("bench", "softmax", "torch"), ("bench", "softmax", "triton"), ("selftest", "copy"))
    ]
    tracer = RecordingTracer()
    run.run_window(steps, launches, lambda: tracer)
    assert events == ["start", "stop"]
    tops = sorted(tracer.instances, key=lambda r: (r.start_ns, r.path.count("/")))
    assert [r.path for r in tops if r.path.count("/") == 0] == [
        "gpt2",
        "gpt2",
        "gpt2_fused",
        "gpt2_fused",
        "bench",
        "selftest",
    ]
    assert [r.path for r in tops][-6:] == [
        "bench",
        "bench/softmax",
        "bench/softmax/torch",
        "bench/softmax/triton",
        "selftest",
        "selftest/copy",
    ]
    leaves = [
        row.range
        for step in steps
        for row in op_rows.step_rows(step.model.config, step.workload, "float32", run._softmax_of(step.model))
    ]
    paths = [r.path for r in tops]
    assert set(leaves) <= set(paths)
    assert all(paths.count(leaf) == 1 for leaf in leaves)


@pytest.mark.parametrize("sizes", ["n_embd=128,n_head=2", "n_embd=96,n_head=2", "n_embd=128,n_head=2,n_inner=72"])
def test_every_range_of_the_model_of_fused_ops_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: str
) -> None:
    """The ranges that the third model opens, and no others, stand in ops.csv; those of one op with its variant."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    config = f"vocab_size=64,n_positions=32,n_layer=2,{sizes}"
    plan = run.make_plan(
        ["--mode", "bare", "--device", "cpu", "--softmax-fused", "v02_fused", "--ops", "fused", "--out", str(tmp_path),
         "--config", config, *SHAPES]
    )  # fmt: skip
    steps = [step for step in plan.steps(plan.models()) if step.model.root == "gpt2_fused_ops"]
    tracer = RecordingTracer()
    run.run_program(steps, [], tracer)
    paths = {instance.path for instance in tracer.instances}
    leaves = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    rows = [row for step in steps for row in run.rows_of(step, "float32")]
    assert len(steps) == 2
    assert {row.range for row in rows} == leaves
    fused = {row.op for row in rows if row.variant != "torch"}
    attends = {"attention_decode"} if "n_embd=128" in sizes else set()
    assert fused == {"encoder", "residual_layernorm", "bias_gelu", "softmax"} | attends


def test_a_capture_leaves_the_dataflow_of_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of capture mode on a CPU: small benches, no profiler, no GPU."""
    from kernels import registry

    class Cudart:
        def cudaProfilerStart(self) -> int:  # noqa: N802  CUDA's name
            return 0

        def cudaProfilerStop(self) -> int:  # noqa: N802
            return 0

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    small = {}
    for name, op in registry.ops().items():
        variants = {key: variant for key, variant in op.variants.items() if variant.kind != "compile"}  # takes minutes
        small[name] = replace(op, bench_shape=op.check_shapes[-1], variants=variants)
    monkeypatch.setattr(registry, "ops", lambda: small)
    arguments = ["--mode", "bare", "--device", "cpu", "--softmax-fused", "v02_fused", "--out", str(tmp_path)]
    plan = replace(run.make_plan([*arguments, *SMALL, *SHAPES]), mode="capture", bench=True, selftest=False)
    run.run_capture(plan)
    with (tmp_path / "dataflow.csv").open(encoding="utf-8") as file:
        recorded = {row["range"] for row in csv.DictReader(file)}
    assert {"gpt2/prefill/h.1/attn/softmax", "gpt2_fused/decode/h.0/attn/softmax"} <= recorded
    assert {"bench/softmax/torch", "bench/residual_layernorm/torch", "bench/split_permute/torch"} <= recorded
    declared = {row["range"] for row in read_ops(tmp_path)}
    assert {path for path in recorded if path.startswith("bench/")} <= declared
    assert not {path for path in recorded if path.startswith("bench/softmax/v0")}  # ours show no operation inside

    records = []
    monkeypatch.setattr(run, "record_dataflow", lambda *_: records.append(1) or "another\n")
    run.run_capture(plan)
    assert not records  # the second tool's run of the same program
    assert (tmp_path / "dataflow.csv").stat().st_size > 100
    run.run_capture(replace(plan, seed=plan.seed + 1))
    assert records == [1]


def test_capture_without_a_gpu_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert run.main(["--mode", "capture", "--out", str(tmp_path)]) == 3
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: --mode capture needs a CUDA GPU")
    assert "\n" not in error


def test_running_out_of_gpu_memory_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(plan: run.Plan) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate …")

    monkeypatch.setattr(run, "run_cpu", exhaust)
    assert run.main(["--mode", "cpu", "--out", str(tmp_path), *SMALL, *SHAPES]) == 3
    assert "ran out of memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--workloads", "train_b1"], 2, "not a workload"),
        (["--workloads", "prefill_b1_t33"], 2, "33 positions"),
        (["--workloads", "decode_b1_ctx0"], 2, "empty"),
        (["--config", "n_layers=2"], 2, "n_layers=2"),
        (["--config", "n_layer=two"], 2, "n_layer=two"),
        (["--samples", "-1"], 2, "--samples"),
        (["--only", "selftest"], 2, "--only"),
        (["--softmax-fused", "v99"], 2, "v99"),
        (["--weights", "gpt2"], 2, "--config"),
    ],
)
def test_bad_arguments_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert run.main(["--mode", "cpu", "--out", str(tmp_path), *SMALL, *SHAPES, *arguments]) == code
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert words in error


# Workloads and ops.csv ----------------------------------------------------------------------------------------


def test_prefill_bytes_and_flops_by_hand() -> None:
    found = op_rows.step_rows(GPT2Config(), find_workload("prefill_b1_t1024"), "float32", "torch")
    rows = {row.range.split("/", 2)[2]: row for row in found}
    scores = 12 * 1024 * 1024
    assert rows["h.3/attn/qkv"].flops == 2 * 1024 * 768 * 2304 + 1024 * 2304
    assert rows["h.3/attn/qkv"].minimum_bytes == 4 * (1024 * 768 + 768 * 2304 + 2304 + 1024 * 2304)
    assert rows["h.3/attn/scores"].flops == 2 * scores * 64
    assert rows["h.3/attn/scores"].minimum_bytes == 4 * (2 * 1024 * 768 + scores)
    assert rows["h.3/mlp/act"].minimum_bytes == 4 * 2 * 1024 * 3072
    assert rows["lm_head"].flops == 2 * 1024 * 768 * 50257
    assert len(rows) == 12 * 11 + 3


def test_ops_csv_has_the_exact_header_ordinals_and_truths() -> None:
    config, workload = GPT2Config(n_layer=1), find_workload("prefill_b1_t64")
    step = op_rows.step_rows(config, workload, "float32", "torch")
    text = op_rows.ops_csv(
        [*step, *step, *op_rows.bench_rows([("softmax", "torch"), ("softmax", "v03_causal")]), *op_rows.selftest_rows()]
    )
    assert text.splitlines()[0] == (
        "op,variant,symbols,range,workload,ordinal,shape,dtype,flops,minimum_bytes,predicted_unfused_bytes,"
        "predicted_fused_bytes,note"
    )
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["ordinal"] for row in rows if row["range"] == "gpt2/prefill/lm_head"] == ["0", "1"]
    truths = {row["variant"]: row for row in rows if row["op"] == "selftest"}
    assert truths["copy"]["note"] == "read=2147483648;write=2147483648"
    assert truths["copy"]["flops"] == ""
    assert int(truths["gemm_fp32"]["flops"]) == 2 * 4096**3
    bench = {row["variant"]: row for row in rows if row["range"].startswith("bench/")}
    assert bench["v03_causal"]["shape"] == "8x12x1024x1024"
    assert bench["torch"]["predicted_fused_bytes"] == bench["v03_causal"]["predicted_fused_bytes"]


# Doctor ------------------------------------------------------------------------------------------------------


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root folder with nothing in it and a PATH with nothing on it but a shell."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.skipif(
    shutil.which("nsys", path="/usr/bin:/bin") is not None, reason="this machine has an nsys of its own"
)
def test_tools_are_found_where_nvidia_puts_them(bare_machine: Path) -> None:
    assert doctor.find_nsys(bare_machine) is None
    inside_ncu = bare_machine / "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys"
    script(inside_ncu, "echo NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0")
    assert doctor.find_nsys(bare_machine) == str(inside_ncu)
    assert doctor.tool_version(str(inside_ncu)) == "2025.3.1.90"
    for version in ("2024.9.1", "2024.10.1"):
        script(bare_machine / f"opt/nvidia/nsight-systems/{version}/bin/nsys", "true")
    newest = bare_machine / "opt/nvidia/nsight-systems/2024.10.1/bin/nsys"
    assert doctor.find_nsys(bare_machine) == str(newest)
    on_path = script(bare_machine / "bin/nsys", "true")
    assert doctor.find_nsys(bare_machine) == str(on_path)


def test_the_importers_missing_libraries_are_named(bare_machine: Path) -> None:
    host = bare_machine / "opt/nvidia/nsight-compute/2025.3.1/host"
    script(host / "target-linux-x64/nsys", "echo NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0")
    script(host / "linux-desktop-glibc_2_11_3-x64/QdstrmImporter", "true")
    script(bare_machine / "bin/ldd", "echo '	libdw.so.1 => not found'; echo '	libc.so.6 => /lib/libc.so.6'")
    line = doctor._importer(bare_machine)
    assert line.status == "missing"
    assert "libdw.so.1" in line.detail
    assert "libdw1" in line.fix
    assert "libc.so.6" not in line.detail


@pytest.mark.parametrize(
    ("parameters", "capabilities", "allowed"),
    [
        (None, "0", None),
        ("RmProfilingAdminOnly: 0\n", "0", True),
        ("RmProfilingAdminOnly: 1\n", "0", False),
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", True),
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", False),
        ("EnableMSI: 1\n", "0", None),
    ],
)
def test_counter_permission_is_read_from_the_driver(
    tmp_path: Path, parameters: str | None, capabilities: str, allowed: bool | None
) -> None:
    if parameters is not None:
        for name, text in {"driver/nvidia/params": parameters, "self/status": f"CapEff:\t{capabilities}\n"}.items():
            path = tmp_path / "proc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    assert doctor.may_read_counters(tmp_path)[0] is allowed
    assert ("NVreg_RestrictProfilingToAdminUsers=0" in str(doctor._counters(tmp_path))) is (allowed is False)


def test_hanging_and_broken_tools_do_not_stop_the_doctor(bare_machine: Path) -> None:
    assert doctor.run(["/bin/sleep", "5"], seconds=0.1)[0] == 124
    broken = script(bare_machine / "bin/ncu", "exit 9")
    assert doctor.tool_version(str(broken)) is None
    assert doctor._tool("ncu", str(broken), "").status == "unknown"


def test_every_line_is_ok_missing_or_unknown_and_the_exit_code_0(bare_machine: Path) -> None:
    lines = [check() for check in doctor.checks(bare_machine)]
    assert {line.status for line in lines} <= {"ok", "missing", "unknown"}
    assert all(line.fix for line in lines if line.status == "missing")
    named = {line.what for line in lines}
    assert named >= {"GPU", "driver", "nsys", "ncu", "importer", "counter permission", "nvcc", "c++", "no HF `kernels`"}


def test_the_doctor_needs_nothing_but_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "harness.doctor"],
        cwd=ROOT,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not installed" in done.stdout
    assert "Traceback" not in done.stderr

"""The time of an operation inside GPT-2: which ranges count, under which op, variant and sizes."""

import itertools
import subprocess
from pathlib import Path

import pytest

from studies.ladder.in_model import COLUMNS, POINT, read_in_model

FLOPS = 2 * 4 * 3 * 5 + 4 * 3
OPS = f"""op,variant,symbols,range,workload,ordinal,shape,dtype,flops,minimum_bytes,note
layernorm,torch,,gpt2/prefill/h.0/ln_1,p,0,4x5,fp32,1,1,
layernorm,torch,,gpt2/prefill/h.0/ln_2,p,0,4x5,fp32,1,1,
layernorm,torch,,bench/layernorm/torch,p,0,4x5,fp32,1,1,
softmax,torch,,gpt2/prefill/h.0/attn/mask,p,0,1x1x4x4,fp32,1,1,chain of two: absorbed
linear,torch,,gpt2/prefill/h.0/mlp/fc,p,0,4x3x5,fp32,{FLOPS},1,
linear,torch,,gpt2/prefill/lm_head,p,0,4x7x5,fp32,{2 * 4 * 7 * 5},1,
linear,torch,,gpt2/decode/h.0/mlp/fc,d,0,1x3x5,fp32,{2 * 3 * 5 + 3},1,
embeddings,torch,,gpt2/prefill/embeddings,p,0,1x4x5,fp32,1,1,
"""
LAYERS = """range,calls,gpu_time_ns
gpt2/prefill/h.0/ln_1,1,100
gpt2/prefill/h.0/ln_2,2,600
bench/layernorm/torch,1,9000
gpt2/prefill/h.0/attn/mask,1,50
gpt2/prefill/h.0/mlp/fc,1,70
gpt2/prefill/lm_head,1,80
gpt2/decode/h.0/mlp/fc,1,30
gpt2/prefill/embeddings,1,6
"""


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    report = tmp_path / "gpu-gpt2-small"
    for name, text in (("captures/ops.csv", OPS), ("tables/layers.csv", LAYERS)):
        (report / name).parent.mkdir(parents=True)
        (report / name).write_text(text)
    return tmp_path / "gpu-ladder"


def test_places_of_the_model_are_told_apart_by_op_and_sizes(ladder: Path) -> None:
    found = read_in_model(ladder)
    assert list(found) == [*POINT, *(column.name for column in COLUMNS)]
    assert found.drop(columns="in_model_run").values.tolist() == [
        ["layernorm", "torch", "fp32", "4x5", 110, 200, 290, 3],
        ["matmul", "torch", "fp32", "4x3x5", 70, 70, 70, 1],  # not the LM head, which has no bias
        ["gemv", "columns", "fp32", "3x5", 30, 30, 30, 1],
        ["encoder", "torch", "fp32", "1x4x5", 6, 6, 6, 1],
    ]
    assert set(found["in_model_run"]) == {"gpu-gpt2-small"}


def test_of_several_runs_the_last_counts(ladder: Path) -> None:
    newer = ladder.with_name("gpu-gpt2-z")
    for name, text in (("captures/ops.csv", OPS.split("softmax")[0]), ("tables/layers.csv", LAYERS)):
        (newer / name).parent.mkdir(parents=True)
        (newer / name).write_text(text.replace("600", "800"))
    rows = read_in_model(ladder).set_index("op")
    assert rows.loc["layernorm", ["in_model_time_p50_ns", "in_model_run"]].tolist() == [250, "gpu-gpt2-z"]
    assert rows.loc["encoder", "in_model_run"] == "gpu-gpt2-small"


def test_without_a_run_there_is_no_time(tmp_path: Path) -> None:
    assert read_in_model(tmp_path / "gpu-ladder").empty
    assert read_in_model(tmp_path / "ladder").empty


def test_the_committed_run_has_times_of_our_softmax() -> None:
    found = read_in_model(Path(__file__).resolve().parents[2] / "reports" / "h200-ladder")
    ours = found[(found["op"] == "softmax") & (found["variant"] == "v05_early")]
    assert set(ours["shape"]) >= {"1x12x1024x1024", "1x12x1x1024"}
    assert (ours["in_model_time_p5_ns"] > 0).all()


def test_the_run_that_times_come_from_is_one_command(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "studies" / "ladder" / "in_model.sh"
    for ops, dtype in itertools.product(("fused", "best"), ("float32", "bfloat16")):
        command = [script, "-n", "--ops", ops, "--dtype", dtype, "--out", tmp_path / "run"]
        timeline, export = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert timeline.partition(" ")[0].endswith("nsys")  # its path, where it is installed
        assert " profile -t cuda,nvtx" in timeline
        assert f"-m harness.run --mode capture --ops {ops} --dtype {dtype} --out {tmp_path}/run/captures" in timeline
        assert export.partition(" ")[0].endswith("nsys")
        assert " stats " in export
    for wrong in (["--dtype", "int8"], ["--ops", "torch"]):
        refused = subprocess.run([script, *wrong], capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)

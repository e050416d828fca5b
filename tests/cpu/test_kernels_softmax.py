"""The custom op on the CPU, and the bench around it as far as it goes without a GPU."""

import math
from dataclasses import replace

import pytest
import torch

from kernels import registry
from kernels.registry import ops
from kernels.softmax.custom_op import causal_softmax
from kernels.softmax.op import causal_mask, reference
from studies import outputs
from studies.bench import measure as bench

pytestmark = pytest.mark.studies

SOFTMAX = ops()["softmax"]


def chain(scores, scale):
    """What a model writes by hand, without any of our functions."""
    tq, tk = scores.shape[-2:]
    hidden = torch.arange(tk)[None, :] > torch.arange(tq)[:, None] + tk - tq
    return torch.softmax((scores * scale).masked_fill(hidden, -math.inf), dim=-1)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 5), (1, 2, 1, 9), (1, 2, 9, 4), (1, 1, 4, 31)])
def test_mask_hides_what_a_query_may_not_see(shape):
    tq, tk = shape[-2:]
    mask = causal_mask(tq, tk, "cpu")
    for i in range(tq):
        for j in range(tk):
            assert bool(mask[i, j]) == (j > i + tk - tq)


@pytest.mark.parametrize("shape", [(2, 2, 7, 7), (1, 2, 9, 4), (1, 1, 1, 6)])
def test_degenerate_rows_give_what_torch_gives(shape):
    scores, _ = SOFTMAX.hostile(torch.randn(shape), 0.5)
    torch.testing.assert_close(causal_softmax(scores, 0.5), chain(scores, 0.5), equal_nan=True, rtol=0, atol=0)
    everything = torch.full(shape, -math.inf)
    assert causal_softmax(everything, 0.5).isnan().all()


def test_rows_that_see_nothing_are_nan():
    result = causal_softmax(torch.randn(1, 1, 5, 3), 1.0)
    assert result[0, 0, :2].isnan().all()
    assert result[0, 0, 2:].isfinite().all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(1, 2, 3, 5), (1, 2, 130, 69), (1, 2, 130, 1024), (1, 2, 3, 4096)])
def test_a_result_that_is_only_rounded_passes_and_one_with_a_larger_error_fails(dtype, shape):
    inputs = SOFTMAX.make_inputs(shape, dtype, seed=shape[-1])
    variant = {"float32": "v03_causal", "bfloat16": "v03_causal", "float16": "v08_half"}[dtype]

    def rounded(scores, scale, factor=1.0):
        return (reference(scores, scale) * factor).to(scores.dtype)

    assert bench.compare(SOFTMAX, variant, inputs, "random", rounded).passed
    wrong = bench.compare(SOFTMAX, variant, inputs, "random", lambda *given: rounded(*given, 1 + 2.0**-7))
    assert not wrong.passed


# --- bench ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SOFTMAX.dtypes)
def test_an_output_that_is_not_written_starts_as_nan(dtype, monkeypatch):
    inputs = SOFTMAX.make_inputs((1, 2, 9, 9), dtype)

    def all_but_one(values, factor):
        result = torch.empty_like(values)
        written = SOFTMAX.reference(values, factor).to(values.dtype)
        result.view(-1)[1:] = written.view(-1)[1:]
        return result

    check = bench.compare(SOFTMAX, "v02_fused", inputs, "random", all_but_one)
    assert check.note == "NaN in other places than the reference"
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda mode: None)
    monkeypatch.setattr(torch, "empty_like", torch.zeros_like)
    with pytest.raises(bench.InputError, match="does not fill new memory"):
        bench.compare(SOFTMAX, "v02_fused", inputs, "random", all_but_one)


def test_without_a_gpu_correctness_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(registry, "ops", lambda: {"softmax": replace(SOFTMAX, check_shapes=((1, 2, 5, 7),))})
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(bench, "ROOT", tmp_path / "project")
    monkeypatch.setattr(outputs, "RUNS", tmp_path / "project" / "runs")
    beside = str(tmp_path / "beside")
    for given, shown in (([], "runs/bench-softmax"), (["--out", "../mine"], "../mine"), (["--out", beside], beside)):
        assert bench.main(["softmax", *given]) == 0
        said = capsys.readouterr()
        assert said.err.startswith("No NVIDIA GPU: nothing is timed")
        assert f"written to {shown}: correctness.txt\n" in said.out
    text = (tmp_path / "mine" / "correctness.txt").read_text()
    assert "every variant is this chain there, and no kernel ran" in text.splitlines()[0]
    rows = [line.split() for line in text.partition("---\n")[2].splitlines()]
    assert [row[:2] for row in rows] == [["torch", "float32"], ["torch", "bfloat16"]]
    assert all(line.endswith("pass (the PyTorch chain: no kernel ran)") for line in text.splitlines()[-2:])


@pytest.mark.parametrize(
    "arguments",
    [
        ["sofmax"],
        ["softmax", "--dtype", "fp8"],
        ["softmax", "--shapes", "huge"],
        ["softmax", "--rounds", "0"],
        ["softmax", "--variants", "v05_ring"],
        ["softmax", "cross_entropy", "rmsnorm", "--variants", "v05_early", "v03_online"],
    ],
)
def test_usage_errors_are_one_sentence(arguments, capsys):
    assert bench.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.endswith(".\n")

"""The transformers baseline: its programs on a CPU with a small model, and what is said of its numbers by rule."""

from typing import Any

import pytest
import torch

from analysis.capture.model import Capture
from analysis.facts import Facts
from harness.gpt2 import GPT2Config
from harness.weights import build_model, build_transformers_model, load_weights
from studies.baseline import measure as baseline
from studies.baseline import tables
from tests.declared import facts_of

pytestmark = pytest.mark.studies

SMALL = GPT2Config(n_layer=2, n_embd=32, n_head=4, n_positions=64, vocab_size=61)


# The program ---------------------------------------------------------------------------------------------------


class Compiled(torch.nn.Module):
    """As torch.compile returns a module: asked for its truth value, it raises an error."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def __len__(self) -> int:
        raise TypeError("a module without len()")

    def forward(self, *args: Any, **more: Any) -> Any:
        return self.model(*args, **more)


def test_every_setting_gives_the_same_tokens_as_our_model() -> None:
    weights = load_weights(config=SMALL, seed=3)
    theirs = build_transformers_model(weights)
    prompt = torch.randint(61, (1, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = build_model(weights).generate(prompt, 20)[:, 9:]
        for name in ("eager", "sdpa"):
            setting = baseline.Generate(name, theirs, prompt, name)
            assert torch.equal(setting.generate(20), expected)
            assert len(setting.stamps(20)) == 21  # the prompt, then each token
        static = baseline.Generate("static", theirs, prompt, "sdpa", static=True)
        assert torch.equal(static.generate(20), expected)
        step = baseline.Graph("graph", theirs, prompt, 20)  # on a CPU the step runs without a graph
        assert torch.equal(step.generate(20), expected)
        assert torch.equal(step.generate(20), expected)  # it starts anew each time
        assert len(step.stamps(20)) == 21
        compiled = baseline.Graph("compiled", theirs, prompt, 20, Compiled(theirs))
        assert torch.equal(compiled.generate(20), expected)


def test_bytes_per_token_are_those_of_gpt2() -> None:
    config = GPT2Config()
    with torch.device("meta"):
        from harness.weights import import_transformers

        transformers = import_transformers()
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=config.vocab_size))
        model.tie_weights()
    # 12 blocks, the tied head, the last LayerNorm, one row of positions: 123.65 million weights of 4 bytes
    weights = 12 * 7_087_872 + 50257 * 768 + 2 * 768 + 768
    assert baseline.bytes_per_token(model, 0) == 4 * weights
    assert baseline.bytes_per_token(model, 100) - 4 * weights == 100 * 2 * 36_864


# What is said of the numbers -----------------------------------------------------------------------------------


def entry(**values: Any) -> dict[str, Any]:
    """A setting of 5 ms a token of which the GPU works 1 ms, with two kernels in ten tokens."""
    spread = {"p5": 190.0, "p50": 200.0, "p95": 210.0}
    operators = [
        {"name": "aten::addmm", "kind": "operator", "self_cpu_ns": 5, "cpu_ns": 9, "self_cuda_ns": 6e6, "cuda_ns": 6e6, "calls": 480},
        {"name": "aten::add", "kind": "operator", "self_cpu_ns": 5, "cpu_ns": 9, "self_cuda_ns": 4e6, "cuda_ns": 4e6, "calls": 500},
        {"name": "void gemv2T_kernel_val<float>", "kind": "kernel", "self_cpu_ns": 0, "cpu_ns": 0, "self_cuda_ns": 4.8e6, "cuda_ns": 4.8e6, "calls": 480},
        {"name": "sm80_xmma_gemm_f32", "kind": "kernel", "self_cpu_ns": 0, "cpu_ns": 0, "self_cuda_ns": 1.2e6, "cuda_ns": 1.2e6, "calls": 10},
        {"name": "elementwise_kernel", "kind": "kernel", "self_cpu_ns": 0, "cpu_ns": 0, "self_cuda_ns": 4e6, "cuda_ns": 4e6, "calls": 500},
    ]  # fmt: skip
    return {
        "setting": "eager",
        "dtype": "float32",
        "tokens_per_s": spread,
        "token_ns": {"p5": 4.9e6, "p50": 5e6, "p95": 5.5e6},
        "profile_tokens": 10,
        "kernels_per_token": 100.0,
        "launches_per_token": 100.0,
        "busy_ns_per_token": 1e6,
        "floor_ns": 1e5,
        "first_call_s": 1.0,
        "tokens_equal_first": None,
        "operators": operators,
        **values,
    }


def of(settings: list[dict[str, Any]], built: Any = None) -> Facts:
    return facts_of(Capture(baseline={"settings": settings}), built)


def test_rates_and_shares_of_a_setting() -> None:
    row = tables.build_baseline(of([entry()])).iloc[0]
    assert row["busy_frac"] == pytest.approx(0.2)
    assert row["floor_frac"] == pytest.approx(0.02)
    assert (row["tokens_per_s"], row["token_p95_ns"], row["launches_per_token"]) == (200.0, 5.5e6, 100.0)

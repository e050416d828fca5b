"""From a program's modules to its fusion plan: dataflow by the hook, launches with the names that a GPU shows."""

from __future__ import annotations

import io
from types import ModuleType

import pandas as pd
import pytest
import torch
from torch import nn

from analysis.formats.run import DATAFLOW
from tests.cpu.test_auto_ranges import hook, marks  # noqa: F401
from tests.cpu.test_tables_fusion import ADD, COPY, GEMM, MUL, plan, timeline

LAMBDA = "(at::TensorIteratorBase&)::[lambda() (instance 1)]"
POW = "void at::native::vectorized_elementwise_kernel<4, at::native::pow_tensor_scalar_kernel_impl<float, float>(T1)>(int, T2, T3)"
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float> >>(T3)"
RSQRT = f"void at::native::vectorized_elementwise_kernel<4, at::native::rsqrt_kernel_cuda{LAMBDA}>(int, T2, T3)"
SILU = f"void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel{LAMBDA}>(int, T2, T3)"
ROWS, WIDTH = 64, 32


class RMSNorm(nn.RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Gated(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x) * x


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.act = RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False), Gated()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc(self.norm(x)))


@pytest.fixture
def recorded(hook: ModuleType, marks: object, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:  # noqa: F811
    """dataflow.csv of one step of a layer in bfloat16."""
    recorder = hook._recorded()
    monkeypatch.setattr(hook, "_recorded", lambda: recorder)
    monkeypatch.setattr(nn.Module, "__call__", nn.Module._wrapped_call_impl)
    hook.install(torch, "dataflow")
    layer = Layer().bfloat16().requires_grad_(False)
    for _ in range(3):  # recorded once
        layer(torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16))
    return pd.read_csv(io.StringIO(DATAFLOW.text(recorder._recorder.rows())))


def test_the_chains_of_a_program_are_planned_for_each_step_and_ready_made_fusions_named(recorded: pd.DataFrame) -> None:
    step = f"step Layer({ROWS} x {WIDTH})"
    chain = [COPY, POW, MEAN, ADD, RSQRT, MUL, COPY, MUL]
    once = [
        *((f"{step}/norm", name, 5) for name in chain),
        (f"{step}/fc", GEMM, 9),
        (f"{step}/act", SILU, 5),
        (f"{step}/act", MUL, 5),
    ]
    first, *rest = once
    found = plan(timeline(*once, *[(*first, {"step": True}), *rest] * 2), recorded)[0].set_index("pattern")
    norm = found.loc["RMSNorm"]
    assert (norm["range"], norm["launches"], norm["now_time_ns"]) == (f"{step}/norm", 8, 40_000)
    assert norm["after_bytes"] == 2 * (2 * ROWS * WIDTH + WIDTH)  # input, result and weight in bfloat16, once each
    assert norm["gain_ns"] > 0
    assert "functional.rms_norm" in norm["evidence"]
    assert found.loc["SwiGLU", ["range", "launches"]].tolist() == [f"{step}/act", 2]
    assert "torch.compile" in found.loc["SwiGLU", "evidence"]

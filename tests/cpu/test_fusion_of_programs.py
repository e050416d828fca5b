"""From a program's modules to its fusion plan: dataflow by the hook, launches with the names that a GPU shows."""

import io
from types import ModuleType
from typing import Any

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


def recording(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """Install the hook so that it records the dataflow of this process, and return its recorder."""
    recorder = hook._recorded()
    monkeypatch.setattr(hook, "_recorded", lambda: recorder)
    monkeypatch.setattr(nn.Module, "__call__", nn.Module._wrapped_call_impl)
    hook.install(torch, "dataflow")
    return recorder


def rows_of(recorder: Any) -> pd.DataFrame:
    found = pd.read_csv(io.StringIO(DATAFLOW.text(recorder._recorder.rows())))
    return found.fillna({"shape": "", "strides": ""})  # of a tensor without axes


@pytest.fixture
def recorded(hook: ModuleType, marks: object, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:  # noqa: F811
    """dataflow.csv of one step of a layer in bfloat16."""
    recorder = recording(hook, monkeypatch)
    layer = Layer().bfloat16().requires_grad_(False)
    for _ in range(3):  # recorded once
        layer(torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16))
    return rows_of(recorder)


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


HALF = "void at::native::elementwise_kernel<128, 4, at::native::neg_kernel(T1)>(int, T2)"
CAT = "void at::native::CatArrayBatchedCopy<float, int, 4>(T1)"


class Rotary(nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def test_a_tensor_and_its_halves_are_read_once(
    hook: ModuleType,  # noqa: F811
    marks: object,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = recording(hook, monkeypatch)
    outer = nn.ModuleDict({"rotary": Rotary()})
    outer.forward = lambda *given: outer.rotary(*given)  # type: ignore[method-assign]
    tables = torch.ones(ROWS, 1, WIDTH), torch.ones(ROWS, 1, WIDTH)
    with torch.no_grad():
        outer(torch.ones(ROWS, 3, 8, WIDTH)[:, 1], *tables)  # of a product for queries, keys and values
    path = f"step ModuleDict({ROWS} x 8 x {WIDTH})/rotary"
    launched = [(path, name, 5) for name in (MUL, HALF, CAT, MUL, ADD)]
    row = plan(timeline(*launched), rows_of(recorder))[0].set_index("pattern").loc["rotary embedding"]
    assert row["after_bytes"] == 4 * (2 * ROWS * 8 * WIDTH + 2 * ROWS * WIDTH)  # x, the result, cos and sin


LERP, ADDCMUL, ADDCDIV, SQRT = (
    f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}(at::TensorIteratorBase&)::[lambda() "
    "(instance 1)]>(int, T2, T3)"
    for name in ("lerp_scalar_kernel", "addcmul_cuda_kernel", "addcdiv_cuda_kernel", "sqrt_kernel_cuda")
)
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)"
ADAM = [LERP, MUL, ADDCMUL, SQRT, MUL, ADD, ADDCDIV]


def test_an_optimiser_is_one_loop_and_only_its_first_step_makes_its_state(
    hook: ModuleType,  # noqa: F811
    marks: object,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    optimiser = torch.optim.Optimizer
    monkeypatch.setattr(optimiser, "profile_hook_step", staticmethod(optimiser.profile_hook_step))
    recorder = recording(hook, monkeypatch)
    weight = nn.Parameter(torch.ones(ROWS, WIDTH))
    weight.grad = torch.ones_like(weight)
    adam = torch.optim.Adam([weight], foreach=False)  # its moments must outlive the step
    adam.step()
    first = [("step Adam", name, 5) for name in ADAM]
    later = [("step Adam", name, 5, {"again": name == LERP}) for name in ADAM]
    launched = timeline(*[("step Adam", FILL, 1)] * 2, *first, *later, *later)
    row = plan(launched, rows_of(recorder))[0].iloc[0]
    assert (row["pattern"], row["launches"]) == ("Adam update", 7)
    # parameter, gradient and two moments read, three of them written; the host counts its steps
    assert row["after_bytes"] == 4 * 7 * ROWS * WIDTH
    assert row["now_time_ns"] == 35_000
    assert "fused=True" in row["evidence"]

"""When a model uses the launch that splits qkv into a KV cache. tests/gpu/test_into_cache.py tests the kernel itself."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness import gpt2
from harness.gpt2 import GPT2, GPT2Config, KVCache
from harness.training import NoCache
from harness.weights import build_model, load_weights
from kernels.permute.op import split_chain

pytestmark = pytest.mark.studies

# --- the model -----------------------------------------------------------------------------------------------
CONFIG = GPT2Config(vocab_size=97, n_positions=64, n_embd=128, n_layer=2, n_head=2)  # heads of 64: one `attend`
NARROW = GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)

Call = tuple[tuple[int, ...], int, int, bool]  # shape of qkv, capacity, first row, whether k and v are copied


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of the launch, of a model whose tensors seem to be on a GPU."""
    calls: list[Call] = []

    def launch(qkv: Any, keys: Any, values: Any, first: int, copies: bool) -> list[Any]:
        calls.append((tuple(qkv.shape), keys.shape[2], first, copies))
        q, k, v = split_chain(qkv, keys.shape[1])
        for cache, new in ((keys, k), (values, v)):
            cache[:, :, first : first + qkv.shape[1]] = new
        return [value.contiguous() for value in ((q, k, v) if copies else (q,))]

    monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(gpt2, "_launches", lambda tensor: False)
    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: launch)
    monkeypatch.setattr(GPT2, "lm_head", lambda self, x: torch.nn.functional.linear(x, self.wte.weight))
    return calls


def model_of(config: GPT2Config = CONFIG, ops: str = "best", dtype: Any = torch.float32) -> GPT2:
    return build_model(load_weights(config=config, seed=3), ops=ops, dtype=dtype)


def ids_of(batch: int, tokens: int) -> Any:
    return torch.randint(97, (batch, tokens), generator=torch.Generator().manual_seed(4))


def run(model: GPT2, batch: int, capacity: int, cuts: tuple[int, ...]) -> list[Any]:
    """Logits of a text in pieces that end at `cuts`, then keys and values."""
    cache, ids, found = model.new_cache(batch, capacity), ids_of(batch, cuts[-1]), []
    with torch.inference_mode():
        for end in cuts:
            found.append(model(ids[:, cache.length : end], cache))
    return [*found, cache.keys, cache.values]


def plainly(work: Callable[[], list[Any]]) -> list[Any]:
    """The results of the same model without the launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt2, "_split_into_cache", lambda dtype: None)
        return work()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("config", [CONFIG, NARROW], ids=["attend", "scores"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("capacity", "cuts"), [(21, (21,)), (40, (21,)), (40, (20, 21, 27, 40))])
def test_a_model_gives_the_same_bits_with_the_launch(
    launched: list[Call], config: GPT2Config, dtype: Any, batch: int, capacity: int, cuts: tuple[int, ...]
) -> None:
    work = functools.partial(run, model_of(config, dtype=dtype), batch, capacity, cuts)
    expected = plainly(work)
    assert not launched
    for got, right in zip(work(), expected, strict=True):
        assert torch.equal(got, right)
    attends = config.head_size == 64
    pieces = zip((0, *cuts), cuts, strict=False)
    assert launched == [
        ((batch, end - begin, 3 * config.n_embd), capacity, begin, attends and not begin and capacity > end)
        for begin, end in pieces
        if end - begin > 1  # not a decode step
        for _ in range(config.n_layer)
    ]


def test_what_the_kernel_does_not_support_keeps_the_copies(launched: list[Call]) -> None:
    cache, qkv = model_of().new_cache(2, 8), torch.zeros(2, 4, 3 * 128)
    with torch.inference_mode():
        assert cache.split(0, qkv) is not None
        assert cache.split(0, qkv[:, :1]) is None  # a decode step
        assert cache.split(0, torch.zeros(2, 4, 6 * 128)[..., ::2]) is None
        assert cache.split(0, qkv.bfloat16()) is None
        wide = torch.zeros(*cache.keys.shape[:-1], 2 * CONFIG.head_size)[..., : CONFIG.head_size]
        assert KVCache.over(wide, wide.clone()).split(0, qkv) is None
        assert NoCache(4, "cpu").split(0, qkv) is None
    assert len(launched) == 1


# --- the LM head ---------------------------------------------------------------------------------------------
def test_one_row_of_the_lm_head_is_a_gemv(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, with ops="best" and without gradients."""
    asked: list[str] = []
    kernel = gpt2._kernel

    def noted(op: str, dtype: Any = torch.float32) -> Any:
        asked.append(op)
        return kernel(op, dtype)

    def logits(*, ops: str = "best", batch: int = 1, last_only: bool = True, gradients: bool = False) -> Any:
        asked.clear()
        with torch.set_grad_enabled(gradients):
            return model_of(ops=ops)(ids_of(batch, 5), last_only=last_only)

    monkeypatch.setattr(gpt2, "_kernel", noted)
    expected = logits()
    assert "gemv" not in asked
    monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: None)
    torch.testing.assert_close(logits(), expected, rtol=1e-5, atol=1e-5)
    assert asked.count("gemv") == 1
    for others in ({"ops": "fused"}, {"batch": 2}, {"last_only": False}, {"gradients": True}):
        logits(**others)  # type: ignore[arg-type]
        assert "gemv" not in asked, others

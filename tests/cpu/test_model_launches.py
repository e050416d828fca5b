"""When a model makes the launches that no benchmark times: attention with merged heads, GELU in a product, argmax."""

from typing import Any

import pytest
import torch

import kernels.attention.op
import kernels.gemv.op
import kernels.matmul.op
from harness import gpt2
from harness.gpt2 import GPT2, GPT2Config
from harness.weights import build_model, load_weights

pytestmark = pytest.mark.studies

BF16 = torch.bfloat16
CONFIG = GPT2Config(vocab_size=97, n_positions=64, n_embd=128, n_layer=2, n_head=2)  # heads of 64: one `attend`


def merged(q: Any, k: Any, v: Any) -> Any:
    attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return attended.transpose(1, 2).flatten(2).contiguous()


def through_gelu(a: Any, weight: Any, bias: Any) -> Any:
    product = torch.addmm(bias.float(), a.float(), weight.float())
    return torch.nn.functional.gelu(product, approximate="tanh").to(a.dtype)


def argmax(values: Any, out: Any) -> None:
    out.copy_(values.argmax(-1))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The launches of a model whose tensors seem to be on a GPU, in PyTorch."""
    calls: list[str] = []

    def noting(name: str, function: Any) -> Any:
        def call(*inputs: Any) -> Any:
            assert all(value.is_contiguous() for value in inputs)
            calls.append(name)
            return function(*inputs)

        return call

    monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: None)
    monkeypatch.setattr(kernels.attention.op, "attention_merged", noting("attention", merged))
    monkeypatch.setattr(kernels.matmul.op, "matmul_gelu", noting("gelu", through_gelu))
    monkeypatch.setattr(kernels.gemv.op, "argmax", noting("argmax", argmax))
    return calls


def model_of(config: GPT2Config = CONFIG, ops: str = "best", dtype: Any = BF16) -> GPT2:
    return build_model(load_weights(config=config, seed=3), ops=ops, dtype=dtype)


def ids_of(batch: int, tokens: int) -> Any:
    return torch.randint(97, (batch, tokens), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_prompt_makes_them_in_every_block_and_changes_no_logit_by_more_than_rounding(
    made: list[str], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    model, ids = model_of(), ids_of(batch, 21)
    with torch.inference_mode():
        got = model(ids)
        assert made == ["attention", "gelu"] * CONFIG.n_layer
        token = model.next_token(got[:, -1:].contiguous())
        assert made[-1] == "argmax"
        made.clear()
        monkeypatch.setattr(gpt2, "_launches", lambda tensor: False)
        expected = model(ids)
        assert torch.equal(token, model.next_token(got))
    assert not made
    assert token.shape == (batch, 1)
    torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))


def test_a_decode_step_makes_only_the_argmax(made: list[str]) -> None:
    model = model_of()
    cache = model.new_cache(1, 8)
    with torch.inference_mode():
        model(ids_of(1, 3), cache)
        made.clear()
        model.next_token(model(ids_of(1, 1), cache))
    assert made == ["argmax"]


def test_on_a_cpu_nothing_is_launched(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: tensor.is_cuda)
    with torch.inference_mode():
        model = model_of()
        model.next_token(model(ids_of(1, 5)))
    assert not made

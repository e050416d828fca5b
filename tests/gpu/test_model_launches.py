"""The launches that only the model makes: attention with merged heads, a product through GELU, the largest logit."""

import functools
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kernels.attention.op  # noqa: E402
import kernels.gemv.op  # noqa: E402
import kernels.matmul.op  # noqa: E402
from harness import gpt2  # noqa: E402
from harness.gpt2 import GPT2Config  # noqa: E402
from harness.weights import build_model, load_weights  # noqa: E402
from kernels.attention.op import ATTENTION, attention_merged  # noqa: E402
from kernels.gemv.op import argmax  # noqa: E402
from kernels.matmul.op import MATMUL, matmul_gelu  # noqa: E402
from kernels.permute.op import merge_chain  # noqa: E402
from tests import random_bits  # noqa: E402
from tests.random_bits import bits  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.studies]
noise = functools.partial(random_bits.noise, device="cuda")
BF16 = torch.bfloat16


# --- attention -----------------------------------------------------------------------------------------------
# one token, edges of tiles, every number of warpgroups and blocks per SM, several sequences
@pytest.mark.parametrize(
    ("batch", "heads", "tokens"),
    [(1, 1, 1), (2, 3, 17), (1, 6, 65), (1, 12, 1024), (2, 3, 257), (15, 12, 161), (12, 12, 65), (3, 4, 2051),
     (4, 12, 1100)],
)  # fmt: skip
def test_merged_attention_gives_the_bits_of_v06_and_a_permutation(batch: int, heads: int, tokens: int) -> None:
    q, k, v = ATTENTION.make_inputs((batch, heads, tokens, 64), "bf16", device="cuda")
    by_head = ATTENTION.variant("v06_small").fn(q, k, v)
    merged = attention_merged(q, k, v)
    assert merged.shape == (batch, tokens, heads * 64)
    if (batch, tokens) != (4, 1100):
        assert torch.equal(bits(merged), bits(merge_chain(by_head)))
    else:  # v06 hands this one to v05: many blocks, and more than 1024 tokens
        torch.testing.assert_close(merged, merge_chain(by_head), rtol=2.0**-6, atol=2.0**-8)


def test_merged_attention_of_rows_that_are_not_finite() -> None:
    q, k, v = (value.clone() for value in ATTENTION.make_inputs((2, 3, 130, 64), "bf16", device="cuda"))
    v[0, 1, 70] = math.inf
    k[1, 2, 129, 5] = math.nan
    merged, by_head = attention_merged(q, k, v), ATTENTION.variant("v06_small").fn(q, k, v)
    assert not merged.isfinite().all()
    assert torch.equal(bits(merged), bits(merge_chain(by_head)))


def test_merged_attention_refuses_what_it_does_not_take() -> None:
    q, k, v = ATTENTION.make_inputs((1, 2, 65, 64), "bf16", device="cuda")
    with pytest.raises(RuntimeError, match=r"one shape \(B, nh, T, 64\)"):
        attention_merged(q, k[:, :, :64].contiguous(), v)
    with pytest.raises(RuntimeError, match="does not take these sizes or this dtype"):
        attention_merged(q.float(), k.float(), v.float())
    assert attention_merged(q[:0], k[:0], v[:0]).shape == (0, 65, 128)


# --- a product through GELU ----------------------------------------------------------------------------------
# every width of tile, with edges
@pytest.mark.parametrize(
    "shape",
    [(2, 8, 8), (130, 264, 72), (1024, 768, 768), (1000, 744, 392), (1020, 2296, 200), (1024, 3072, 768),
     (1000, 2984, 392), (1030, 3080, 72), (8192, 3072, 768)],
)  # fmt: skip
def test_the_product_goes_through_gelu_and_is_rounded_once(shape: tuple[int, int, int]) -> None:
    a, weight, bias = MATMUL.make_inputs(shape, "bf16", device="cuda")
    product = torch.addmm(bias.double(), a.double(), weight.double())
    expected = torch.nn.functional.gelu(product, approximate="tanh")
    got = matmul_gelu(a, weight, bias).double()
    # half a unit of the rounding, and the sum's error, which GELU makes at most 1.13 times as large
    limit = 2.0**-8 * expected.abs() + 2.0**-14 * product.abs().amax() + 2.0**-20
    assert ((got - expected).abs() <= limit).all()


def test_a_chain_of_products_reads_what_the_launch_before_wrote() -> None:
    first, weight, bias = MATMUL.make_inputs((1024, 768, 768), "bf16", device="cuda")

    def chain(after_each: Any) -> Any:
        x = first
        for _ in range(8):
            x = matmul_gelu(x, weight, bias)
            after_each()
        return x

    assert torch.equal(bits(chain(lambda: None)), bits(chain(torch.cuda.synchronize)))


def test_the_product_refuses_what_it_does_not_take() -> None:
    a, weight, bias = MATMUL.make_inputs((64, 20, 24), "bf16", device="cuda")
    with pytest.raises(RuntimeError, match="does not take these sizes"):
        matmul_gelu(a, weight, bias)
    with pytest.raises(RuntimeError, match="does not take this dtype"):
        matmul_gelu(a.float(), weight.float(), bias.float())


# --- the largest value ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 50257), (8, 50257), (3, 5), (2, 1023), (5, 8193), (1, 31)])
def test_argmax_finds_what_pytorch_finds(dtype: Any, rows: int, columns: int) -> None:
    out = torch.full((rows,), -1, dtype=torch.int64, device="cuda")
    for seed in range(20):
        values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to("cuda", dtype)
        argmax(values, out)
        largest = values.max(-1, keepdim=True).values
        first = (values == largest).int().argmax(-1)  # of equal values, which bf16 has many of
        assert torch.equal(out, first)
        assert torch.equal(values.gather(1, out[:, None]), largest)


@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=["fp32", "bf16"])
def test_argmax_of_extremes(dtype: Any) -> None:
    out = torch.empty(1, dtype=torch.int64, device="cuda")
    cases = [
        (dict.fromkeys(range(4000), -math.inf), 0),  # nothing but -inf
        ({17: 0.0, 16: -0.0}, 16),  # 0 and -0 are equal: the first, of one thread
        ({2000: 0.0, 16: -0.0}, 16),  # and of two
        ({3000: math.inf, 40: 1e30}, 3000),
        ({3000: math.inf, 3999: math.nan, 3500: math.nan}, 3500),
        ({0: math.nan}, 0),
        ({3999: 1.0}, 3999),
    ]
    for places, expected in cases:
        values = torch.full((1, 4000), -5.0, dtype=dtype, device="cuda")
        for at, value in places.items():
            values[0, at] = value
        argmax(values, out)
        assert int(out) == expected
    values = torch.full((1, 20_000), -5.0, dtype=dtype, device="cuda")  # several packets a thread
    values[0, 9001:9003] = math.nan
    values[0, 18_000] = math.inf
    argmax(values, out)
    assert int(out) == 9001


def test_argmax_refuses_what_it_does_not_take() -> None:
    values, out = torch.zeros(2, 5, device="cuda"), torch.zeros(2, dtype=torch.int64, device="cuda")
    for wrong in ((values[0], out), (values, out[:1]), (values, out.int()), (values, out.cpu())):
        with pytest.raises(RuntimeError, match=r"argmax takes values \(B, N\)"):
            argmax(*wrong)


# --- in the model --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("tokens", [2, 129, 256])
def test_a_model_gives_what_it_gives_without_these_launches(
    monkeypatch: pytest.MonkeyPatch, batch: int, tokens: int
) -> None:
    config = GPT2Config(vocab_size=211, n_positions=256, n_embd=256, n_layer=3, n_head=4)
    weights = load_weights(config=config, seed=3)
    model, reference = (build_model(weights, device="cuda", dtype=dtype, ops="best") for dtype in (BF16, torch.float32))
    ids = torch.randint(211, (batch, tokens), generator=torch.Generator().manual_seed(4)).cuda()
    made: list[str] = []

    def noting(module: Any, name: str) -> None:
        function = getattr(module, name)

        def call(*inputs: Any) -> Any:
            made.append(name)
            return function(*inputs)

        monkeypatch.setattr(module, name, call)

    noting(kernels.attention.op, "attention_merged")
    noting(kernels.matmul.op, "matmul_gelu")
    noting(kernels.gemv.op, "argmax")
    with torch.inference_mode():
        got, right = model(ids), reference(ids)
        last = got[:, -1:].contiguous()
        token = model.next_token(last)
        assert made == ["attention_merged", "matmul_gelu"] * config.n_layer + ["argmax"]
        monkeypatch.setattr(gpt2, "_launches", lambda x: False)
        apart = model(ids)
    first = (last == last.max(-1, keepdim=True).values).int().argmax(-1)
    assert torch.equal(token, first)
    error, error_apart = (float((value.double() - right.double()).norm()) for value in (got, apart))
    assert error <= 1.1 * error_apart

"""The launch that splits qkv into a KV cache, against PyTorch's copies: it moves elements, so every bit is the same."""

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from harness import gpt2  # noqa: E402
from harness.gpt2 import GPT2, GPT2Config  # noqa: E402
from harness.weights import build_model, load_weights  # noqa: E402
from kernels.permute.op import split_chain, split_into_cache  # noqa: E402
from tests import random_bits  # noqa: E402
from tests.random_bits import bits  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.studies]
noise = functools.partial(random_bits.noise, device="cuda")

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
ROWS = [(1024, 0, 0), (1024, 0, 1024), (65, 0, 0), (33, 9, 3), (2, 40, 0), (1, 5, 2)]  # tokens, first row, rows behind
# heads of 64: one `attend` for a prompt; heads of 16: scores, softmax and values
ATTENDS = GPT2Config(vocab_size=211, n_positions=256, n_embd=256, n_layer=3, n_head=4)
NARROW = GPT2Config(vocab_size=211, n_positions=256, n_embd=64, n_layer=3, n_head=4)


@DTYPES
@pytest.mark.parametrize(("batch", "heads", "size"), [(1, 12, 64), (3, 12, 64), (3, 5, 20), (2, 2, 33), (1, 1, 64)])
@pytest.mark.parametrize(("tokens", "first", "behind"), ROWS)
@pytest.mark.parametrize("copies", [False, True])
def test_every_element_goes_to_its_place(
    dtype: Any, batch: int, heads: int, size: int, tokens: int, first: int, behind: int, copies: bool
) -> None:
    qkv = noise(batch, tokens, 3 * heads * size, dtype=dtype, seed=1)
    before = noise(2, batch, heads, first + tokens + behind, size, dtype=dtype, seed=2)
    cache = before.clone()
    q, *both = split_into_cache(qkv, cache[0], cache[1], first, copies)
    expected = split_chain(qkv, heads)
    assert len(both) == 2 * copies
    for got, right in zip((q, *both), expected, strict=False):
        assert got.is_contiguous()
        assert torch.equal(bits(got), bits(right))
    # rows of other tokens keep their bits
    before[:, :, :, first : first + tokens] = torch.stack(expected[1:])
    assert torch.equal(bits(cache), bits(before))


@DTYPES
def test_addresses_need_no_alignment(dtype: Any) -> None:
    def moved(value: Any) -> Any:
        flat = torch.empty(value.numel() + 1, dtype=dtype, device="cuda")
        flat[1:] = value.reshape(-1)
        return flat[1:].view(value.shape)

    qkv, cache = noise(2, 33, 3 * 4 * 64, dtype=dtype, seed=1), noise(2, 2, 4, 40, 64, dtype=dtype, seed=2)
    keys, values = moved(cache[0]), moved(cache[1])
    q, k, v = split_into_cache(moved(qkv), keys, values, 3, True)
    for got, right in zip((q, k, v), split_chain(qkv, 4), strict=True):
        assert torch.equal(bits(got), bits(right))
    for got, right in ((keys, k), (values, v)):
        assert torch.equal(bits(got[:, :, 3:36].contiguous()), bits(right))


@DTYPES
def test_a_chain_reads_what_the_launch_before_wrote(dtype: Any) -> None:
    """Launches overlap, and each waits for the one before: a chain gives the bits of launches one at a time."""
    qkv = noise(1, 8192, 3 * 2 * 216, dtype=dtype, seed=5)
    sizes = (216, 72, 24, 8)  # v of one launch is qkv of the next

    def chain(after_each: Any) -> list[Any]:
        caches = [torch.zeros(2, 1, 2, 8192, size, dtype=dtype, device="cuda") for size in sizes]
        found, given = [*caches], qkv
        torch.cuda.synchronize()
        for keys, values in caches:
            made = split_into_cache(given, keys, values, 0, True)
            given = made[2].view(1, 8192, -1)
            found += made
            after_each()
        return found

    for got, right in zip(chain(lambda: None), chain(torch.cuda.synchronize), strict=True):
        assert torch.equal(bits(got), bits(right))


def test_the_current_stream_and_a_graph() -> None:
    qkv = noise(1, 65, 3 * 4 * 64, dtype=torch.bfloat16, seed=1)
    cache = torch.zeros(2, 1, 4, 70, 64, dtype=torch.bfloat16, device="cuda")
    expected = [*split_into_cache(qkv, cache[0], cache[1], 2, True), cache.clone()]
    side = torch.cuda.Stream()
    cache.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        late = torch.zeros_like(qkv)
        torch.cuda._sleep(20_000_000)
        late.copy_(qkv)
        results = split_into_cache(late, cache[0], cache[1], 2, True)  # on another stream this would read the zeros
    side.synchronize()
    for got, right in zip((*results, cache), expected, strict=True):
        assert torch.equal(bits(got), bits(right))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = split_into_cache(qkv, cache[0], cache[1], 2, True)
    for value in (*captured, cache):
        value.zero_()
    graph.replay()
    torch.cuda.synchronize()
    for got, right in zip((*captured, cache), expected, strict=True):
        assert torch.equal(bits(got), bits(right))


def test_operands_that_do_not_fit_are_refused() -> None:
    qkv = torch.zeros(2, 5, 3 * 4 * 64, device="cuda")
    keys, values = torch.zeros(2, 2, 4, 8, 64, device="cuda")
    for first in (-1, 4):
        with pytest.raises(RuntimeError, match="no room for these rows"):
            split_into_cache(qkv, keys, values, first, False)
    for wrong in (
        (qkv[:1], keys, values),
        (qkv[..., :-3].contiguous(), keys, values),
        (qkv, keys, values[:, :2].contiguous()),
    ):
        with pytest.raises(RuntimeError, match=r"takes qkv \(B, T, 3 nh hs\)"):
            split_into_cache(*wrong, 0, False)
    with pytest.raises(RuntimeError, match="contiguous"):
        split_into_cache(qkv, keys, values.transpose(1, 2).contiguous().transpose(1, 2), 0, False)
    with pytest.raises(RuntimeError, match="of one dtype"):
        split_into_cache(qkv, keys, values.bfloat16(), 0, False)


# --- in the model --------------------------------------------------------------------------------------------
def run(model: GPT2, batch: int, capacity: int, cuts: tuple[int, ...]) -> list[Any]:
    """Logits of a text in pieces that end at `cuts`, then keys and values."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(model.config.vocab_size, (batch, cuts[-1]), generator=generator).cuda()
    cache, found = model.new_cache(batch, capacity), []
    with torch.inference_mode():
        for end in cuts:
            found.append(model(ids[:, cache.length : end], cache))
    return [*found, cache.keys, cache.values]


@DTYPES
@pytest.mark.parametrize("config", [ATTENDS, NARROW], ids=["attend", "scores"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("capacity", "cuts"), [(129, (129,)), (200, (129,)), (200, (64, 65, 129, 200))])
def test_a_model_gives_what_it_gives_with_pytorchs_copies(
    monkeypatch: pytest.MonkeyPatch, config: GPT2Config, dtype: Any, batch: int, capacity: int, cuts: tuple[int, ...]
) -> None:
    model = build_model(load_weights(config=config, seed=3), device="cuda", dtype=dtype, ops="best")
    calls = []

    def noted(*inputs: Any) -> Any:
        calls.append(inputs[3:])
        return split_into_cache(*inputs)

    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: noted)
    got = run(model, batch, capacity, cuts)
    pieces = list(zip((0, *cuts), cuts, strict=False))
    assert calls == [
        (begin, config is ATTENDS and not begin and capacity > end)
        for begin, end in pieces
        if end - begin > 1
        for _ in range(config.n_layer)
    ]
    monkeypatch.setattr(gpt2, "_split_into_cache", lambda dtype: None)
    expected = run(model, batch, capacity, cuts)
    # before the first attention, nothing but the places of elements may differ
    for mine, theirs in zip(got[-2:], expected[-2:], strict=True):
        assert torch.equal(mine[0], theirs[0])
    for mine, theirs in zip(got, expected, strict=True):
        if config is ATTENDS and len(cuts) == 1:
            assert torch.equal(mine, theirs)
        else:  # PyTorch's product of q and k may be another kernel where q is contiguous
            limit = 1e-4 if dtype == torch.float32 else 0.1
            assert float((mine - theirs).abs().max()) <= limit * float(theirs.abs().max())


@DTYPES
def test_the_head_of_one_row_gives_the_logits_of_pytorchs_product(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = GPT2Config(n_layer=1)
    model = build_model(load_weights(config=config, seed=3), device="cuda", dtype=dtype, ops="best")
    x = torch.randn(1, 1, config.n_embd, generator=torch.Generator().manual_seed(1)).to("cuda", dtype)
    with torch.inference_mode():
        got = model.lm_head(x)
        expected = x.double() @ model.wte.weight.double().t()
        monkeypatch.setattr(gpt2, "_on_gpu", lambda tensor: False)
        theirs = model.lm_head(x)
    assert (got.shape, got.dtype) == (theirs.shape, theirs.dtype) == ((1, 1, config.vocab_size), dtype)
    limit = 1e-5 if dtype == torch.float32 else 2.0**-8
    assert float((got.double() - expected).abs().max()) <= limit * float(expected.abs().max())

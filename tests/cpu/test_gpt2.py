"""The model against transformers' GPT2LMHeadModel on the same weights, and its own promises."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from analysis.formats.errors import InputError, UsageError
from harness.gpt2 import GPT2, GPT2Config
from harness.weights import Weights, build_model, load_weights

TINY = GPT2Config(vocab_size=97, n_positions=48, n_embd=32, n_layer=3, n_head=4)
SIZES = {
    "tiny": TINY,
    "one_head_one_layer": GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=1),
    "narrow_mlp_exact_gelu": GPT2Config(
        vocab_size=64, n_positions=32, n_embd=48, n_layer=2, n_head=3, n_inner=40, activation_function="gelu"
    ),
    "scaled_by_layer": GPT2Config(
        vocab_size=64, n_positions=32, n_embd=64, n_layer=4, n_head=2, scale_attn_by_inverse_layer_idx=True
    ),
    "unscaled": GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2, scale_attn_weights=False),
    "wide_epsilon": GPT2Config(
        vocab_size=300, n_positions=64, n_embd=192, n_layer=2, n_head=3, layer_norm_epsilon=1e-3
    ),
}


def randomise(weights: Weights, seed: int) -> Weights:
    """Biases and norms that are not 0 and 1, so that a forgotten one shows."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in weights.state.values():
        tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
    return weights


def reference(weights: Weights) -> Any:
    """transformers' model with these weights."""
    from dataclasses import asdict

    import transformers

    config = transformers.GPT2Config(**asdict(weights.config), attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).eval()
    state = {f"transformer.{name}": tensor for name, tensor in weights.state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"]
    assert not unexpected
    model.tie_weights()
    return model


def tokens(config: GPT2Config, batch: int, count: int, seed: int = 0) -> Any:
    return torch.randint(config.vocab_size, (batch, count), generator=torch.Generator().manual_seed(seed))


def compare(weights: Weights, softmax: str, batch: int, prompt: int, steps: int, absolute: float) -> float:
    """Largest absolute difference over a prefill and `steps` decode steps; asserts that it is within bounds."""
    ours, theirs = build_model(weights, softmax), reference(weights)
    ids = tokens(weights.config, batch, prompt + steps)
    cache, past, worst = ours.new_cache(batch), None, 0.0
    cuts = [0, *range(prompt, prompt + steps + 1)]
    with torch.inference_mode():
        for start, end in pairwise(cuts):
            got = ours(ids[:, start:end], cache)
            expected = theirs(ids[:, start:end], past_key_values=past, use_cache=True)
            past = expected.past_key_values
            assert got.shape == expected.logits.shape
            worst = max(worst, float((got - expected.logits).abs().max()))
    assert worst <= absolute
    assert cache.length == prompt + steps
    return worst


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("batch", [1, 3])
def test_logits_equal_transformers_on_random_weights(name: str, batch: int) -> None:
    config = SIZES[name]
    compare(randomise(load_weights("random", 5, config), 6), "torch", batch, 9, config.n_positions - 9, 1e-4)


def softmax_variants() -> list[str]:
    from kernels.registry import ops

    return list(ops()["softmax"].variants)


@pytest.mark.parametrize("softmax", softmax_variants())
def test_every_softmax_variant_gives_the_logits_and_tokens_of_transformers(softmax: str) -> None:
    weights = randomise(load_weights("random", 7, TINY), 8)
    compare(weights, softmax, 2, 10, 12, 1e-4)
    ids = tokens(TINY, 2, 6)
    theirs = reference(weights)
    with torch.inference_mode():
        expected = theirs.generate(
            ids,
            max_new_tokens=30,
            do_sample=False,
            attention_mask=torch.ones_like(ids),
            pad_token_id=0,
            eos_token_id=-1,
        )
    assert torch.equal(build_model(weights, softmax).generate(ids, 30), expected)


def test_a_truncated_cache_repeats_a_decode_step_exactly() -> None:
    model = build_model(load_weights("random", 1, TINY))
    ids, cache = tokens(TINY, 1, 10), model.new_cache(1)
    with torch.inference_mode():
        model(ids[:, :9], cache)
        first = model(ids[:, 9:], cache)
        cache.truncate(9)
        assert torch.equal(model(ids[:, 9:], cache), first)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("batch", [1, 3])
def test_fused_ops_give_the_logits_of_the_torch_ops(name: str, batch: int) -> None:
    weights = randomise(load_weights(config=SIZES[name], seed=4), seed=5)
    plain = build_model(weights)
    fused = plain.with_softmax("v03_causal", ops="fused")
    assert (plain.root, fused.root) == ("gpt2", "gpt2_fused_ops")
    ids = tokens(weights.config, batch, 9)
    caches = plain.new_cache(batch), fused.new_cache(batch)
    with torch.inference_mode():
        for start, end in ((0, 7), (7, 8), (8, 9)):
            expected, got = (
                model(ids[:, start:end], cache) for model, cache in zip((plain, fused), caches, strict=True)
            )
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
        last = [model(ids[:, :5], model.new_cache(batch), last_only=True) for model in (plain, fused)]
    torch.testing.assert_close(last[1], last[0], rtol=1e-5, atol=1e-5)
    assert caches[1].length == 9
    torch.testing.assert_close(caches[1].keys, caches[0].keys, rtol=1e-5, atol=1e-5)


def test_unknown_ops_are_refused() -> None:
    with pytest.raises(UsageError, match="no ops 'fast': use torch, fused or best"):
        GPT2(TINY, ops="fast")


def test_too_many_tokens_are_refused_in_one_sentence() -> None:
    model = build_model(load_weights("random", 1, TINY))
    with pytest.raises(UsageError, match="do not fit"):
        model(tokens(TINY, 1, TINY.n_positions + 1))
    with pytest.raises(UsageError, match="do not fit"):
        model(tokens(TINY, 1, 5), model.new_cache(1, 4))
    with pytest.raises(UsageError, match="no position"):
        model.new_cache(1, 4).truncate(5)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"n_embd": 10, "n_head": 3}, UsageError, "not a multiple"),
        ({"n_layer": 0}, UsageError, "use 1 or more"),
        ({"activation_function": "swish"}, InputError, "swish"),
    ],
)
def test_impossible_sizes_are_refused(values: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        GPT2Config(**values)


@pytest.mark.parametrize("values", [{"reorder_and_upcast_attn": True}, {"tie_word_embeddings": False}])
def test_options_that_change_the_arithmetic_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        GPT2Config.from_dict(values)


def test_generate_returns_prompt_and_new_tokens() -> None:
    model: GPT2 = build_model(load_weights("random", 1, TINY))
    ids = tokens(TINY, 2, 3)
    out = model.generate(ids, 4)
    assert out.shape == (2, 7)
    assert torch.equal(out[:, :3], ids)

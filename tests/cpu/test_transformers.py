"""Our attention inside transformers, on the CPU: small saved checkpoints give what transformers' own attention gives."""

import functools
import re
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.studies

TOKENS = torch.randint(0, 300, (2, 10), generator=torch.Generator().manual_seed(0))
names = pytest.mark.parametrize("name", ["kernel_ledger", "kernel_ledger_softmax"])


@pytest.fixture(scope="module", autouse=True)
def imported():
    """transformers takes two seconds: only the worker that runs these tests pays for it."""
    global masks, ours, transformers
    transformers = pytest.importorskip("transformers")
    from transformers import masking_utils as masks

    from kernels.integrations import transformers as ours


@pytest.fixture(autouse=True)
def unwarned():
    ours.forget_warnings()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A GPT-2 of two layers and two heads of 64, and a Qwen2 of four heads that share two keys, one layer windowed."""
    path = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 299, "pad_token_id": 0}
    gpt2 = transformers.GPT2Config(n_layer=2, n_embd=128, n_head=2, n_positions=64, initializer_range=0.2, **sizes)
    transformers.GPT2LMHeadModel(gpt2).save_pretrained(path / "gpt2")
    qwen = transformers.Qwen2Config(
        hidden_size=256, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        use_sliding_window=True, sliding_window=6, max_window_layers=1, initializer_range=0.2, **sizes,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(qwen).save_pretrained(path / "qwen")
    return path


@functools.cache
def loaded(path: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation=ours.NAME).eval()


def load(folder: Path, kind: str, name: str):
    """The one model of a kind, switched to an attention."""
    model = loaded(folder / kind)
    model.set_attn_implementation(name)
    return model


def greedy(model, tokens=TOKENS, **more) -> torch.Tensor:
    return model.generate(tokens, max_new_tokens=4, do_sample=False, eos_token_id=None, **more)


@torch.no_grad()
def said(function, *arguments, **more) -> tuple[object, list[str]]:
    """What a call returns, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*arguments, **more)
    return result, [str(warning.message) for warning in caught]


# --- the same results ----------------------------------------------------------------------------------------
@names
def test_logits_and_greedy_text_are_those_of_eager(folder, name):
    def of(implementation):
        model = load(folder, "gpt2", implementation)
        return said(lambda: (model(TOKENS).logits, greedy(model)))

    (expected, text), _ = of("eager")
    (logits, found), warned = of(name)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found, text)
    assert warned == []


def test_a_model_whose_attention_is_unknown_keeps_its_own(caplog):
    """Bloom's attention takes no name: transformers says so in a sentence, and nothing of ours runs."""
    sizes = {"vocab_size": 300, "hidden_size": 64, "n_layer": 1, "n_head": 1}
    torch.manual_seed(0)
    model = transformers.BloomForCausalLM(transformers.BloomConfig(**sizes)).eval()
    before, _ = said(model, TOKENS)
    model.set_attn_implementation(ours.NAME)
    (sentence,) = [record.getMessage() for record in caplog.records]
    assert sentence.startswith("BloomForCausalLM does not support setting its attention implementation dynamically")
    after, warned = said(model, TOKENS)
    assert torch.equal(after.logits, before.logits)
    assert warned == []


@names
def test_the_ops_run_and_not_sdpa(folder, name, monkeypatch):
    monkeypatch.setitem(ours._theirs, "sdpa", lambda *_, **__: pytest.fail("sdpa was called"))
    greedy(load(folder, "gpt2", name))


@names
def test_text_goes_on_from_a_cache(folder, name):
    """A second prompt of several tokens behind a cache that is not empty."""
    results = []
    for implementation in ("eager", name):
        model = load(folder, "gpt2", implementation)
        cache = model(TOKENS[:, :6], use_cache=True).past_key_values
        results.append(said(model, TOKENS[:, 6:], past_key_values=cache)[0].logits)
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


@names
def test_gradients(folder, name):
    def gradient(implementation):
        model = load(folder, "gpt2", implementation)
        return torch.autograd.grad(model(TOKENS, labels=TOKENS).loss, model.transformer.h[0].attn.c_attn.weight)[0]

    torch.testing.assert_close(gradient(name), gradient("eager"), rtol=1e-4, atol=1e-6)


@names
def test_a_compiled_forward_has_one_graph(folder, name):
    model = load(folder, "gpt2", name)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        logits, warned = said(lambda: compiled(TOKENS).logits)
        torch.testing.assert_close(logits, model(TOKENS).logits, rtol=1e-5, atol=1e-5)
    assert warned == []


@names
def test_a_compiled_decode_step_with_a_static_cache_has_one_graph(folder, name):
    results = []
    for compiled in (False, True):
        model = load(folder, "gpt2", name)
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        with torch.no_grad():
            model(TOKENS, past_key_values=cache)
            torch._dynamo.reset()
            step = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
            results.append(said(step, TOKENS[:, :1], past_key_values=cache)[0].logits)
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


# --- masks ---------------------------------------------------------------------------------------------------
def mask_of(spans, queries, keys):
    return (
        torch.ones(2, 1, queries, keys, dtype=torch.bool).tril(keys - queries)
        if spans is None
        else ours.mask_of_spans(spans, queries, keys)
    )


@pytest.mark.parametrize("window", [None, 3], ids=["causal", "window"])
@pytest.mark.parametrize("padded", [0, 2])
@pytest.mark.parametrize(
    ("queries", "keys", "offset"), [(5, 5, 0), (1, 5, 4), (2, 5, 3), (1, 8, 4), (1, 8, torch.tensor(4))]
)
def test_spans_stand_for_the_mask_of_transformers(window, padded, queries, keys, offset):
    function = masks.sliding_window_causal_mask_function(window) if window else masks.causal_mask_function
    kept = None
    if padded:
        kept = torch.ones(2, int(offset) + queries, dtype=torch.bool)
        kept[1, :padded] = False
    arguments = {"q_offset": offset, "mask_function": function, "attention_mask": kept}
    expected = masks.sdpa_mask(2, queries, keys, **arguments, allow_is_causal_skip=False)
    spans = ours.causal_spans(2, queries, keys, **arguments)
    assert torch.equal(mask_of(spans, queries, keys), expected)


@pytest.mark.parametrize("hidden", [[4], [0, 2], [0, 1, 2, 3, 4], [0, 4]])
def test_padding_anywhere_but_on_the_left_is_refused(hidden):
    kept = torch.ones(2, 5, dtype=torch.bool)
    kept[1, hidden] = False
    mask, warned = said(ours.causal_spans, 2, 5, 5, mask_function=masks.causal_mask_function, attention_mask=kept)
    assert mask.dtype == torch.uint8
    assert "padded on the right, or between its tokens" in warned[0]


# --- what goes to sdpa ---------------------------------------------------------------------------------------
def of_layer(name, **more):
    """A call as a layer makes it, and what it warned of."""
    function = ours.attention_forward if name == ours.NAME else ours.softmax_forward
    dtype = more.pop("dtype", torch.float32)
    q, k, v = (torch.randn(1, 2, 4, 64, generator=torch.Generator().manual_seed(i)).to(dtype) for i in range(3))
    module = types.SimpleNamespace(is_causal=more.pop("causal", True), num_key_value_groups=1, training=False)
    mask = more.pop("mask", None)
    return said(function, module, q, k, v, mask, **more)


@names
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"causal": False}, "the layer is not causal"),
        ({"dropout": 0.1}, r"dropout is on \(0.1\)"),
        ({"output_attentions": True}, "output_attentions asks for the attention weights"),
        ({"dtype": torch.float64}, "the dtype is float64, not float32 or bfloat16"),
        ({"position_bias": torch.zeros(1, 2, 4, 4)}, "the model gives its attention position_bias, which"),
        ({"mask": torch.ones(1, 1, 4, 4, dtype=torch.bool)}, "the mask came with four axes"),
        ({"sliding_window": 2}, "a sliding window that its mask does not show"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_is_not_ours_goes_to_sdpa_and_is_named_once(name, more, reason):
    (output, weights), warned = of_layer(name, **more)
    assert weights is None
    assert output.shape == (1, 4, 2, 64)
    (sentence,) = warned
    assert re.search(reason, sentence)
    assert sentence.startswith("kernel_ledger attention falls back to sdpa: ")
    assert sentence.count(".") - sentence.count("0.1") == 1
    assert of_layer(name, **more)[1] == []


@pytest.mark.parametrize(
    ("capability", "size", "reason"),
    [
        (75, 128, "head size 128 needs more shared memory than compute capability 7.5 has"),
        (70, 64, "compute capability 7.0 is below 7.5"),
        (75, 64, ""),
        (80, 128, ""),
        (90, 96, "the head size is 96, not 64 or 128"),
    ],
)
def test_what_a_gpu_lacks_is_known_before_anything_is_built(capability, size, reason):
    q = torch.empty(1, 2, 3, size)
    assert ours._unfit(q, q, capability) == reason


def test_rungs_are_chosen_by_capability():
    fp32, bf16 = torch.float32, torch.bfloat16
    assert [ours.attention_variant(bf16, sm) for sm in (75, 80, 89, 90, 100)] == [
        "",
        "v04_mma",
        "v04_mma",
        "v06_small",
        "v04_mma",
    ]
    assert [ours.attention_variant(fp32, sm) for sm in (75, 80, 90)] == ["", "v03_tiled", "v03_tiled"]
    assert [ours.grouped_variant(bf16, sm, 5) for sm in (75, 80, 90)] == ["v01_tiled", "v02_mma", "v08_ring"]
    assert [ours.grouped_variant(fp32, sm, 5) for sm in (75, 80, 90)] == ["v01_tiled", *["v09_split_tf32"] * 2]
    assert [ours.grouped_variant(bf16, sm, 1) for sm in (75, 80, 90)] == ["v03_split", "v03_split", "v05_cluster"]
    assert ours.grouped_variant(fp32, 90, 1) == "v03_split"


@pytest.mark.parametrize(
    ("strided", "dtype", "capability", "rung"),
    [
        (False, torch.bfloat16, 90, "v06_small"),
        (True, torch.bfloat16, 90, "v08_ring"),
        (True, torch.bfloat16, 80, "v04_mma"),
        (True, torch.float32, 90, "v03_tiled"),
    ],
)
def test_heads_that_a_rung_would_copy_stay_in_place(strided, dtype, capability, rung, monkeypatch):
    for name in ("attention", "attention_grouped"):
        plain = getattr(ours, name)
        monkeypatch.setattr(ours, name, lambda *given, plain=plain: taken.append(given[-1]) or plain(*given))
    taken: list[str] = []
    shape = (2, 5, 3, 64) if strided else (2, 3, 5, 64)
    q, k, v = (value.transpose(1, 2) if strided else value for value in torch.randn(3, *shape, dtype=dtype))
    out = ours._fused(q, k, v, None, 64**-0.5, capability)
    assert taken == [rung]
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    torch.testing.assert_close(out.double(), exact.transpose(1, 2), rtol=0.02, atol=0.02)


# --- transformers itself -------------------------------------------------------------------------------------


def test_a_missing_transformers_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ours.IntegrationError, match="run `pip install transformers`"):
        ours.register()

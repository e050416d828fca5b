"""Our attention inside transformers on the GPU: greedy text in fp32, every call in bf16 against float64, CUDA graphs."""

import warnings

import pytest
import torch

from kernels.registry import ops
from studies.bench import measure as bench

pytestmark = [pytest.mark.gpu, pytest.mark.studies]

TOKENS = torch.randint(0, 300, (2, 70), generator=torch.Generator().manual_seed(0))
SIZES = {"vocab_size": 300, "bos_token_id": 0, "eos_token_id": 299, "pad_token_id": 0, "initializer_range": 0.1}
CACHES = [{}, {"cache_implementation": "static", "disable_compile": True}]


@pytest.fixture(scope="module", autouse=True)
def imported():
    """As on the CPU: only the worker that runs these tests pays for transformers."""
    global ours, transformers
    transformers = pytest.importorskip("transformers")
    from kernels.integrations import transformers as ours


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=2, n_embd=256, n_head=4, n_positions=256, **SIZES)
    )


def qwen():
    return transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            hidden_size=768, intermediate_size=256, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            head_dim=128, use_sliding_window=True, sliding_window=40, max_window_layers=1, **SIZES,
        )
    )  # fmt: skip


@pytest.fixture(scope="module", params=[gpt2, qwen], ids=["gpt2", "qwen"])
def model(request):
    torch.manual_seed(0)
    return request.param().cuda().eval()


@torch.no_grad()
def greedy(model, name, **more):
    model.set_attn_implementation(name)
    return model.generate(TOKENS.cuda(), max_new_tokens=24, do_sample=False, eos_token_id=None, **more)


@pytest.mark.parametrize("name", ["kernel_ledger", "kernel_ledger_softmax"])
@pytest.mark.parametrize("more", CACHES, ids=["dynamic", "static"])
@pytest.mark.parametrize("padding", [0, 30])
def test_greedy_text_is_that_of_eager(model, name, more, padding):
    mask = torch.ones_like(TOKENS).cuda()
    mask[0, :padding] = 0
    model.float()
    ours.forget_warnings()
    with warnings.catch_warnings():
        if name == ours.SOFTMAX_NAME:  # which hides no keys
            warnings.filterwarnings("ignore", "kernel_ledger attention falls back to sdpa")
        text = greedy(model, name, attention_mask=mask, **more)
    assert torch.equal(text, greedy(model, "eager", attention_mask=mask, **more))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("more", CACHES, ids=["dynamic", "static"])
def test_every_call_is_within_the_bounds_of_its_op(model, dtype, more, monkeypatch):
    calls = []

    def checked(op, function):
        def run(*inputs):
            *operands, variant = inputs if isinstance(inputs[-1], str) else (*inputs, "")
            result = function(*inputs)
            if op.name == "attention_grouped" and operands[0].shape[2] == 1:
                judged, variant = ops()["attention_decode_grouped"], "v03_split"
            else:
                judged = op
            whole = tuple(operands)
            if judged.folder == "attention_grouped" and whole[3] is None:
                keys = whole[1].shape[2]
                spans = torch.tensor([[0, keys, 2**30]] * len(whole[0]), dtype=torch.int32, device="cuda")
                whole = (*whole[:3], spans, whole[4])
            check = bench.compare(judged, variant or judged.best_for(dtype), whole, "model", lambda *_: result.clone())
            assert check.passed, check
            calls.append(judged.name)
            return result

        return run

    for name in ("attention", "attention_decode", "attention_grouped"):
        monkeypatch.setattr(ours, name, checked(ops()[name], getattr(ours, name)))
    mask = torch.ones_like(TOKENS).cuda()
    mask[0, :30] = 0
    model.to(dtype)
    greedy(model, ours.NAME, attention_mask=mask, **more)
    greedy(model, ours.NAME, **more)
    assert len(calls) == 2 * 2 * 24
    assert "attention_decode_grouped" in calls


def test_a_decode_step_in_a_cuda_graph_follows_the_cache(model):
    """One captured step, replayed: lengths are read on the GPU."""
    model.float()
    model.set_attn_implementation(ours.NAME)
    ids = TOKENS[:, :50].cuda()
    with torch.no_grad():
        expected = model(TOKENS.cuda(), use_cache=True).logits[:, 50:60]
        cache = transformers.StaticCache(config=model.config, max_cache_len=128)
        model(ids, past_key_values=cache)
        lengths = [layer.cumulative_length for layer in cache.layers]
        if any(hasattr(layer, "cumulative_length_int") for layer in cache.layers):
            pytest.skip("a sliding layer of transformers counts its tokens on the host")
        token = TOKENS[:, 50:51].cuda()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            model(token, past_key_values=cache)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = model(token, past_key_values=cache).logits
        for length in lengths:
            length.fill_(50)
        for step in range(10):
            token.copy_(TOKENS[:, 50 + step : 51 + step])
            graph.replay()
            torch.testing.assert_close(logits[:, 0], expected[:, step], rtol=1e-3, atol=1e-3)

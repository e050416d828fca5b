"""The generated decode kernel: its own source on a CPU against transformers, its plan, and what it refuses."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernels.decode_llama import device
from kernels.decode_llama.plan import HEAD, MATRICES, UNIT, Shape, UnservedError, pack, plan, rotation, shape_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def _llama(**changes):
    sizes = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 64, "tie_word_embeddings": True,
        "rope_parameters": LLAMA3,
    }  # fmt: skip
    return transformers.LlamaConfig(**(sizes | changes))


def _qwen3(**changes):
    sizes = {
        "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64,
        "intermediate_size": 160, "vocab_size": 100, "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    return transformers.Qwen3Config(**(sizes | changes))


def _model(config, sharp=6):
    """Return a model whose attention looks at few keys, and whose norms differ from 1. `sharp` scales q and k."""
    torch.manual_seed(0)
    made = (transformers.Qwen3ForCausalLM if config.model_type == "qwen3" else transformers.LlamaForCausalLM)(config)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(sharp if "q_proj" in name or "k_proj" in name else 3)
            parameter.copy_(parameter.bfloat16())  # the reference has the same weights
    return made.eval()


@pytest.fixture(scope="module")
def compiler():
    found = shutil.which("g++")
    if not found:
        pytest.skip("the kernel's source runs on a CPU if g++ compiles it")
    return found


def _built(compiler, shape, folder):
    library = folder / "decode_llama.so"
    defines = [f"-DMODEL_{name}={value}" for name, value in shape.defines.items()]
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", *defines, f"-I{ROOT / 'kernels/decode_llama'}",
         f"-I{ROOT / 'tests/cpu'}", str(ROOT / "tests/cpu/decode_llama_on_cpu.cc"), "-o", str(library)],
        check=True,
    )  # fmt: skip
    return device.Library(library)


@pytest.mark.parametrize(
    ("config", "batch", "blocks", "tokens", "changes"),
    [
        (_llama(), 1, 3, 9, {}),
        (_llama(), 1, 3, 9, {"sharp": 42}),  # a power relative to a token's own score is too large
        (_llama(hidden_size=256, head_dim=64, intermediate_size=256), 1, 7, 4, {"slot_units": 1}),  # whole chunks
        (_llama(), 1, 6, 12, {"least_rows": 3}),  # parts of the context are merged
        (_llama(num_attention_heads=8, head_dim=64), 2, 9, 12, {"least_rows": 3}),  # by the tensor cores
        (_qwen3(), 3, 5, 7, {}),  # a chunk crosses tiles
        (_qwen3(num_key_value_heads=1), 1, 15, 5, {"slot_units": 8}),  # blocks without a tile
    ],
)
def test_the_source_decodes_like_transformers(compiler, tmp_path, config, batch, blocks, tokens, changes):
    changes = dict(changes)
    model = _model(config, changes.pop("sharp", 6))
    shape = replace(shape_of(config, batch, blocks), **changes)
    state = device.empty_state(shape, 16, "cpu")
    weights = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    program = device.Program(
        _built(compiler, shape, tmp_path), weights, shape, config, state, patience_ns=60_000_000_000
    )
    ids = torch.randint(0, config.vocab_size, (batch, tokens))
    state.ids[:, :tokens], state.token[:] = ids, ids[:, 0]
    program.given.fill_(tokens)
    with torch.no_grad():
        expected = model(ids).logits
        plain = model.bfloat16()(ids).logits.float()  # what rounding does
    done = 0
    while done < tokens - 1:
        launched = min(1 + done % 2, tokens - 1 - done)
        program.launch(launched)
        done += launched
        assert program.trouble() == ""
        error = (program.logits - expected[:, done - 1]).abs().max()
        assert error <= 1.5 * (plain[:, done - 1] - expected[:, done - 1]).abs().max() + 1e-3
    assert state.position.item() == tokens - 1
    program.launch(2)  # now greedy
    assert program.trouble() == ""
    assert torch.equal(state.ids[:, tokens + 1], program.logits.argmax(-1))
    program.launch(16)
    assert "no room for more tokens in a cache of 16" in program.trouble()


@pytest.mark.parametrize("together", [True, False])
def test_each_unit_has_its_own_place(together):
    shape = Shape(96, 2, 2, 2, 64, 160, 100, False, 1e-5, 64, blocks=5, slot_units=4)
    made = plan(shape, together=together)
    config = _qwen3()
    weights = {name: tensor.bfloat16() for name, tensor in _model(config).state_dict().items()}
    packed = pack(weights, shape, made)
    assert packed.shape == (made.units, UNIT)
    rows = packed.view(-1, 8, 32)
    head = weights["lm_head.weight"]
    tile, unit = 7, 2
    warp, inside = made.stream[HEAD][tile, unit], made.inside[HEAD][tile, unit]
    chunk = made.begins[warp] + inside // 4 * made.stride
    assert torch.equal(rows[chunk * 4 + inside % 4], head[8 * tile : 8 * tile + 8, 32 * unit : 32 * unit + 32])
    places = set()
    for matrix in (*MATRICES, HEAD):
        for layer in range(1 if matrix == HEAD else shape.layers):
            warp = made.stream[matrix]
            inside = made.inside[matrix] + layer * made.steps[warp]
            places |= set(zip(warp.ravel().tolist(), inside.ravel().tolist(), strict=True))
            assert (inside < made.chunks[warp] * 4).all()
    assert len(places) == 2 * sum(shape.tiles(one) * (shape.columns(one) // 32) for one in MATRICES) + 13 * 3


@pytest.mark.parametrize("rope", [LLAMA3, {"rope_type": "default", "rope_theta": 500000.0}])
def test_rotation_is_that_of_transformers(rope):
    config = _llama(rope_parameters=dict(rope))
    theirs = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    cosines, sines = theirs(torch.zeros(1), torch.arange(64)[None])
    ours = rotation(config, 32, 64)
    np.testing.assert_allclose(ours[:, 0], cosines[0, :, :16], atol=2e-5)
    np.testing.assert_allclose(ours[:, 1], sines[0, :, :16], atol=2e-5)


def test_weight_bytes_of_llama_1b():
    shape = Shape(2048, 16, 32, 8, 64, 8192, 128256, False, 1e-5, 131072)
    assert shape.weight_bytes == 2 * 1_235_814_400  # all parameters, as the LM head is the embedding
    assert shape.cache_bytes(1) == 32768


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (SimpleNamespace(model_type="gpt2"), "serves llama and qwen3, not gpt2"),
        (_llama(hidden_act="gelu"), "SwiGLU only, not gelu"),
        (_llama(attention_bias=True), "has attention_bias"),
        (_llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}), "not as linear"),
        (_qwen3(head_dim=48), "not of 48"),
        (_qwen3(intermediate_size=100), "width of its MLP of 100"),
        (_qwen3(num_key_value_heads=2, num_attention_heads=3), "3 query heads cannot share 2"),
    ],
)
def test_configurations_that_are_refused(config, said):
    with pytest.raises(UnservedError, match=said) as caught:
        shape_of(config)
    assert str(caught.value).endswith("run it with transformers' generate().")


def test_other_refusals():
    shape = shape_of(_llama())
    with pytest.raises(UnservedError, match="1 to 8 sequences at once, not 9"):
        shape_of(_llama(), 9)
    with pytest.raises(UnservedError, match=r"compute capability 9\.0, and A has 8\.0"):
        device.refuse_gpu(shape, (8, 0), "A", 10**12, 64)
    with pytest.raises(UnservedError, match="needs 32 multiprocessors, and A has 16"):
        device.refuse_gpu(replace(shape, blocks=16), (9, 0), "A", 10**12, 64)
    with pytest.raises(UnservedError, match=r"0\.0 GB beside the model, and A has 0\.0 free"):
        device.refuse_gpu(shape, (9, 0), "A", 1000, 64)
    with pytest.raises(UnservedError, match="x has values that are not finite"):
        device.refuse_weights({"x": torch.tensor([1.0, float("nan")]).bfloat16()})
    with pytest.raises(UnservedError, match=r"in bfloat16, and x is in torch\.float32"):
        device.refuse_weights({"x": torch.ones(1)})
    with pytest.raises(UnservedError, match="needs an NVIDIA GPU, and the model is on cpu"):
        device.Engine(_model(_llama()))

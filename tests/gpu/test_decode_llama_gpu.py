"""The generated decode engine on a GPU of compute capability 9.0: logits and greedy text of small models, refusals."""

import pytest
import torch

from kernels.decode_llama.device import CAPABILITY, Engine
from kernels.decode_llama.plan import UnservedError
from studies.decode.measure_agreement import compare, compare_greedy

pytestmark = [pytest.mark.gpu, pytest.mark.studies]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


@pytest.fixture(scope="module", autouse=True)
def imported():
    global transformers
    transformers = pytest.importorskip("transformers")
    if torch.cuda.get_device_capability() != CAPABILITY:
        pytest.skip("the decode kernel is written for compute capability 9.0")
    yield
    torch.cuda.synchronize()


def _models(name):
    """Return a model in bfloat16 and the same in float32. Its attention looks at few keys."""
    if name == "llama":
        config = transformers.LlamaConfig(
            hidden_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
            intermediate_size=512, vocab_size=1000, max_position_embeddings=2048, tie_word_embeddings=True, rope_parameters=LLAMA3,
        )  # fmt: skip
        made = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.Qwen3Config(
            hidden_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=128,
            intermediate_size=352, vocab_size=4099, max_position_embeddings=2048, tie_word_embeddings=False,
        )  # fmt: skip
        made = transformers.Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, parameter in made.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if "norm" in key:
                drawn = 1 + 0.1 * drawn
            elif "embed" in key:
                drawn *= 0.05
            else:
                drawn *= parameter.shape[1] ** -0.5 * (2 if "q_proj" in key or "k_proj" in key else 1)
            parameter.copy_(drawn.bfloat16())
    made = made.eval().cuda()
    plain = type(made)(config).eval().cuda()
    plain.load_state_dict(made.state_dict())
    for parameter in plain.parameters():  # buffers stay in float32, as transformers loads them
        parameter.data = parameter.data.bfloat16()
    return plain, made


@pytest.mark.parametrize(("name", "batch"), [("llama", 1), ("qwen3", 1), ("llama", 3), ("qwen3", 8)])
def test_logits_and_tokens_are_those_of_transformers(name, batch):
    plain, reference = _models(name)
    tokens = 700 if batch == 1 else 300  # parts of the context are merged
    engine = Engine(plain, 1024, batch)
    ids = torch.randint(0, plain.config.vocab_size, (batch, tokens), device="cuda")
    state, program = engine.state, engine.program
    state.ids[:, :tokens] = ids
    state.token.copy_(ids[:, 0])
    program.given.fill_(tokens)
    found = []
    for _ in range(tokens - 1):
        program.launch(1)
        found.append(program.logits.clone())
    found = torch.stack(found).cpu()
    assert program.trouble() == ""
    with torch.inference_mode():
        expected, usual = reference(ids).logits.cpu(), plain(ids).logits.cpu()
    for sequence in range(batch):
        agreement = compare(expected[sequence], usual[sequence], (one[sequence] for one in found), 0)
        assert agreement.good, agreement
        assert agreement.kl_mean < 2 * agreement.plain_kl_mean
    prompt, new = ids[:, :400], 64
    text = engine.generate(prompt, new)
    assert torch.equal(engine.generate(prompt, new), text)
    with torch.inference_mode():
        expected, usual = reference(text).logits, plain(text).logits
    for sequence in range(batch):
        *_, wrong = compare_greedy(expected[sequence], usual[sequence], text[sequence : sequence + 1], 400)
        assert wrong == 0


def test_what_is_refused():
    plain, _ = _models("llama")
    engine = Engine(plain, 64)
    with pytest.raises(UnservedError, match="40 and 30 tokens exceed a cache of 64"):
        engine.generate(torch.zeros(1, 40, dtype=torch.int64, device="cuda"), 30)
    with pytest.raises(UnservedError, match="2048 positions, and 4096 were asked for"):
        Engine(plain, 4096)
    plain.model.norm.weight.data[3] = float("nan")
    with pytest.raises(UnservedError, match=r"model\.norm\.weight has values that are not finite"):
        Engine(plain, 64)

"""The engines of studies/decode on the CPU: the step that a GPU records, against the model and against its mutants."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from analysis.formats.errors import InputError, UsageError
from harness import gpt2
from harness.gpt2 import BEST_OPS, GPT2Config
from harness.ranges import RecordingTracer
from harness.weights import Weights, build_model, load_weights
from kernels.decode.contract import Gpu, Sampling, Sizes
from studies.decode.measure_agreement import compare, forced_logits, peaked_weights
from studies.decode.measure_engines import (
    ENGINES,
    MOST_BATCH,
    Engine,
    check_memory,
    folders_of,
    gpu_at_hand,
    open_engine,
    refusal,
    sizes_of,
)
from studies.decode.measure_step import Step

pytestmark = pytest.mark.studies

SMALL = GPT2Config(vocab_size=97, n_positions=48, n_embd=128, n_layer=2, n_head=2)  # heads of 64, as the kernels have
ODD = GPT2Config(vocab_size=61, n_positions=40, n_embd=48, n_layer=3, n_head=3, n_inner=72)  # heads of 16


def prompt(config: GPT2Config, batch: int, tokens: int, seed: int = 3) -> Any:
    return torch.randint(config.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def on_cpu(weights: Weights, name: str = "graph", dtype: str = "float32", **more: Any) -> Engine:
    return open_engine(name, weights, dtype=dtype, device="cpu", **more)


def logits_of(engine: Engine, ids: Any, prompt_tokens: int) -> Any:
    """Logits (steps, V) of a text that is run token by token behind its first tokens."""
    engine.prefill(ids[:, :prompt_tokens])
    found = []
    for at in range(prompt_tokens, ids.shape[1]):
        engine.force(ids[:, at])
        engine.step()
        found.append(engine.program.logits.float().clone())
    return torch.stack(found)


def reference_logits(weights: Weights, ids: Any, prompt_tokens: int) -> Any:
    with torch.inference_mode():
        return build_model(weights)(ids)[:, prompt_tokens:].transpose(0, 1)


@pytest.mark.parametrize("config", [SMALL, ODD], ids=["heads of 64", "odd"])
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_give_the_tokens_of_the_model(config: GPT2Config, batch: int) -> None:
    weights = peaked_weights(config)
    ids = prompt(config, batch, 5)
    expected = build_model(weights).generate(ids, config.n_positions - 5)
    assert torch.equal(on_cpu(weights, batch=batch).generate(ids, config.n_positions - 5), expected)


def test_a_host_that_reads_along_sees_every_token() -> None:
    engine, ids = on_cpu(peaked_weights(SMALL)), prompt(SMALL, 1, 3)
    text = engine.generate(ids, 9)
    engine.prefill(ids)
    assert list(engine.stream(8)) == text[0, 4:].tolist()


def test_bfloat16_runs_and_stays_near_float32() -> None:
    weights, ids = load_weights("random", 0, SMALL), prompt(SMALL, 1, 20)
    got = logits_of(on_cpu(weights, dtype="bfloat16"), ids, 4)
    assert float((got - reference_logits(weights, ids, 4)).abs().max()) < 0.05


@pytest.mark.parametrize("config", [SMALL, ODD], ids=["heads of 64", "odd"])
def test_the_model_of_best_kernels_gives_the_logits_of_the_plain_one(config: GPT2Config) -> None:
    weights, ids = peaked_weights(config), prompt(config, 2, 21)
    with torch.inference_mode():
        plain, best = (build_model(weights, ops=ops) for ops in ("torch", "best"))
        expected = plain(ids)
        assert float((best(ids) - expected).abs().max()) < 2e-4
        cache = best.new_cache(2)
        parts = [best(ids[:, :20], cache), best(ids[:, 20:], cache)]  # a prompt, then a token over its cache
        assert float((torch.cat(parts, 1) - expected).abs().max()) < 2e-4
    assert best.root == "gpt2_best"


# --- mutants: with peaked attention each of these changes the text ---


def judged(engine: Engine, mutate: Any = None) -> Any:
    """The engine's agreement with float64 on a text of 40 tokens, after `mutate` behind the first 8."""
    weights, ids = peaked_weights(SMALL), prompt(SMALL, 1, 40)
    with torch.inference_mode():
        reference, plain = build_model(weights, dtype=torch.float64)(ids)[0], build_model(weights)(ids)[0]
        steps = forced_logits(engine, ids, 8)
        first = next(steps)
        if mutate is not None:
            mutate(engine)

        def all_steps() -> Iterator[Any]:
            yield first
            yield from steps

        return compare(reference, plain, all_steps(), 8)


def test_the_engine_agrees_with_the_reference() -> None:
    agreement = judged(on_cpu(peaked_weights(SMALL)))
    assert agreement.good
    assert agreement.positions == agreement.same == 32
    assert agreement.kl_most < 1e-9


# --- nothing asks the host ---


class NoHost(TorchDispatchMode):
    """Refuses what would make the host wait: values that are read, copies to the host, sizes that depend on values."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item")

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.partition("::")[2]
        assert name not in self.REFUSED, f"{name} asks the host"
        result = function(*args, **(kwargs or {}))
        tensors = result if isinstance(result, tuple | list) else [result]
        assert all(not isinstance(value, torch.Tensor) or value.is_meta for value in tensors), f"{name} left the device"
        self.calls += 1
        return result


def step_on_meta(batch: int, sampling: Sampling) -> Step:
    """The step on tensors without values: whatever wanted one would fail."""
    weights = load_weights("random", 0, SMALL)
    engine = on_cpu(weights, batch=batch)
    state = type(engine.state)(*(getattr(engine.state, name).to("meta") for name in engine.state.__dataclass_fields__))
    held = {name: tensor.to("meta") for name, tensor in weights.state.items()}
    step = Step(held, engine.sizes, SMALL, state, Sampling(), "cpu")
    step.sampling = sampling
    return step


@pytest.mark.parametrize("batch", [1, MOST_BATCH])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 5)], ids=["greedy", "sampled"])
def test_a_step_asks_nothing_of_the_host(batch: int, sampling: Sampling) -> None:
    step = step_on_meta(batch, sampling)
    with torch.inference_mode(), NoHost() as watched:
        step.launch(1)
    assert watched.calls > 20


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 5, 1)], ids=["greedy", "sampled"])
def test_a_step_is_recorded_once_in_its_ranges_and_replayed_for_every_token(
    sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for CUDA's streams and graphs: what the engine does around them."""
    weights, ids = peaked_weights(SMALL), prompt(SMALL, 1, 4)
    engine = on_cpu(weights, sampling=sampling)
    made: list[Any] = []

    class Graph:
        def __init__(self) -> None:
            made.append(self)
            self.replays, self.generators = 0, []

        def register_generator_state(self, generator: Any) -> None:
            self.generators.append(generator)

        def replay(self) -> None:
            self.replays += 1
            engine.program.launch(1)

    for name, stand_in in (("Stream", MagicMock), ("current_stream", MagicMock), ("CUDAGraph", Graph)):
        monkeypatch.setattr(torch.cuda, name, stand_in)
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda _: contextlib.nullcontext())
    tracer = RecordingTracer()
    engine.capture(tracer)
    assert sum(one.path == "gpt2_step/h.1/attn/attend" for one in tracer.instances) == 1
    (graph,) = made
    assert graph.generators == ([] if sampling.greedy else [engine.program.generator])
    texts = [engine.generate(ids, 20) for _ in range(2)]
    assert graph.replays == 38
    if sampling.greedy:
        assert torch.equal(texts[0], texts[1])
        assert torch.equal(texts[0], on_cpu(weights).generate(ids, 20))


# --- sampling ---


def test_sampling_repeats_with_its_seed_and_follows_the_probabilities() -> None:
    from studies.decode.measure_step import sample

    weights, ids = load_weights("random", 0, SMALL), prompt(SMALL, 1, 4)
    texts = [on_cpu(weights, sampling=Sampling(1.0, 0, seed)).generate(ids, 30) for seed in (5, 5, 6)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = sample(probabilities.log().expand(20_000, 4), Sampling(1.0, 3), torch.Generator().manual_seed(0)).bincount(
        minlength=4
    )
    expected = probabilities[:3] / probabilities[:3].sum()
    assert drawn[3] == 0
    assert float((drawn[:3] / 20_000 - expected).abs().max()) < 5 * 0.5 / 20_000**0.5


# --- what cannot be ---


def test_more_text_than_the_cache_holds_is_one_sentence() -> None:
    engine = on_cpu(load_weights("random", 0, SMALL), capacity=10)
    with pytest.raises(UsageError, match=r"need 11 rows of a cache that has 10"):
        engine.prefill(prompt(SMALL, 1, 11))
    engine.prefill(prompt(SMALL, 1, 8))
    engine.decode(2)
    with pytest.raises(UsageError, match=r"1 more tokens need 11 rows"):
        engine.step()
    assert engine.tokens.shape == (1, 11)


def test_bad_calls_are_one_sentence() -> None:
    weights = load_weights("random", 0, SMALL)
    engine = on_cpu(weights)
    with pytest.raises(UsageError, match="no prompt yet"):
        engine.step()
    with pytest.raises(UsageError, match="decodes 1 sequences"):
        engine.prefill(prompt(SMALL, 2, 4))
    with pytest.raises(UsageError, match="no engine 'warp'"):
        on_cpu(weights, "warp")
    with pytest.raises(UsageError, match="1 to 8 sequences"):
        on_cpu(weights, batch=9)
    with pytest.raises(UsageError, match="cache of 49 tokens"):
        on_cpu(weights, capacity=49)


@pytest.mark.parametrize("name", ["few", "persistent"])
def test_an_engine_that_refuses_falls_back_to_the_graph_and_says_so(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = on_cpu(load_weights("random", 0, SMALL), name)
    assert engine.name == "graph"
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
    assert "cannot sample at temperature 1" in refusal(
        name, engine.sizes, Gpu("GPU", (9, 0), 132, 232448), Sampling(1.0)
    )
    assert engine.generate(prompt(SMALL, 1, 3), 4).shape == (1, 7)


H200 = Gpu("NVIDIA H200", (9, 0), 132, 232448)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"activation_function": "gelu"}, "the activation 'gelu'"),
        ({"scale_attn_weights": False}, "scores that are not scaled by the root"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scores that are not scaled by the root"),
    ],
)
@pytest.mark.parametrize("name", ["few", "persistent"])
def test_a_model_of_other_arithmetic_is_refused_and_not_decoded_wrongly(
    name: str, changed: dict[str, Any], said: str
) -> None:
    config = GPT2Config(**changed)
    sizes = Sizes(12, 768, 12, 3072, 50257, 1024, 1e-5, 1, 1024, "bfloat16")
    assert said in refusal(name, sizes, H200, config=config, build=False)
    assert refusal(name, sizes, H200, config=GPT2Config(), build=False) == ""
    assert refusal("graph", sizes, H200, config=config) == ""


def test_weights_that_are_no_numbers_are_one_sentence() -> None:
    weights = load_weights("random", 0, SMALL)
    weights.state["h.1.mlp.c_fc.weight"][3, 5] = float("nan")
    with pytest.raises(InputError, match=r"^The parameter h\.1\.mlp\.c_fc\.weight holds a value that is not a finite"):
        on_cpu(weights)


@pytest.mark.parametrize(
    ("dtype", "free", "way"),
    [
        ("float32", 1 << 30, "use --dtype bfloat16\\."),
        ("float32", 1 << 28, "use --dtype bfloat16 or a smaller model"),
        ("bfloat16", 1 << 28, "use a smaller model"),
        ("bfloat16", 560_000_000, "use a smaller --context or --batch"),
    ],
)
def test_a_model_that_the_gpu_cannot_hold_is_one_sentence(dtype: str, free: int, way: str) -> None:
    sizes = Sizes(12, 768, 12, 3072, 50257, 1024, 1e-5, 8, 1024, dtype)
    check_memory(sizes, 1 << 32, "graph")
    with pytest.raises(InputError, match=rf"^Engine graph needs \d\.\d GiB .*: {way}"):
        check_memory(sizes, free, "graph")


def test_a_configuration_of_another_architecture_is_one_sentence() -> None:
    with pytest.raises(
        InputError,
        match=r"of a llama model and the engines decode gpt2 only: run it with kernels\.decode_llama\.device\.Engine",
    ):
        GPT2Config.from_dict({"model_type": "llama", "num_key_value_heads": 8, "hidden_act": "silu"})


@pytest.mark.parametrize("name", ["eager", "graph", "few", "persistent"])
def test_an_engine_compiles_what_it_calls_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.registry import ops

    called = {"split_permute", "merge_heads", "matmul", "gemv"}  # of a GPU, or of larger sizes
    plain = gpt2._kernel
    monkeypatch.setattr(gpt2, "_kernel", lambda op, *more: called.add(op) or plain(op, *more))
    build_model(load_weights("random", 0, SMALL), ops=BEST_OPS)(prompt(SMALL, 1, 4))
    folders = {ops()[op].folder for op in called}
    assert set(folders_of(name, H200)) == folders | (
        {"decode"} if name in ("few", "persistent") else {"attention_grouped"}
    )


def test_bytes_of_a_step_are_those_of_the_parameters() -> None:
    gpt2 = Sizes(12, 768, 12, 3072, 50257, 1024, 1e-5, 1, 1024, "bfloat16")
    assert gpt2.weight_bytes == 247_308_288
    assert gpt2.cache_bytes(1) == 36_864
    weights = load_weights("random", 0, ODD)
    sizes = sizes_of(weights, "float32", batch=2)
    held = sum(tensor.numel() for name, tensor in weights.state.items() if name != "wpe.weight") + ODD.n_embd
    assert sizes.weight_bytes == 4 * held
    assert sizes.cache_bytes(7) == 4 * 2 * 2 * 3 * 48 * 7


def test_without_a_gpu_there_is_none() -> None:
    if not torch.cuda.is_available():
        assert gpu_at_hand() is None
    assert set(ENGINES) == {"eager", "graph", "few", "persistent"}

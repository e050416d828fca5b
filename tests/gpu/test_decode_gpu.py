"""The engines on a GPU: the graph against the model and against itself launched kernel by kernel, few and persistent."""

from typing import Any

import pytest
import torch

from harness.gpt2 import GPT2Config
from harness.weights import build_model
from kernels.decode.contract import Sampling
from studies.decode.measure_agreement import (
    compare,
    compare_greedy,
    divergence,
    forced_logits,
    greedy_text,
    peaked_weights,
)
from studies.decode.measure_engines import Engine, gpu_at_hand, open_engine, refusal, sizes_of

pytestmark = [pytest.mark.gpu, pytest.mark.studies]

SMALL = GPT2Config(vocab_size=997, n_positions=96, n_embd=256, n_layer=3, n_head=4)
GPT2_124M = GPT2Config()


def prompt(config: GPT2Config, batch: int, tokens: int, seed: int = 3) -> Any:
    ids = torch.randint(config.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(seed))
    return ids.to("cuda")


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("name", ["eager", "graph"])
def test_an_engine_gives_the_tokens_of_the_model_in_float32(name: str, batch: int) -> None:
    weights, ids = peaked_weights(SMALL), prompt(SMALL, batch, 7)
    engine = open_engine(name, weights, dtype="float32", batch=batch)
    text = engine.generate(ids, 80)
    engine.check()
    reference = build_model(weights, device="cuda", dtype=torch.float64)
    with torch.inference_mode():
        for row in range(batch):
            own = text[row : row + 1]
            logits = build_model(weights, device="cuda")(own)[0]
            assert compare_greedy(reference(own)[0], logits, own, 7)[2] == 0


def test_one_graph_serves_every_prompt_and_every_length() -> None:
    weights = peaked_weights(SMALL)
    engine = open_engine("graph", weights, dtype="float32")
    graph = engine.graph
    first = engine.generate(prompt(SMALL, 1, 60, seed=5), 30)
    ids = prompt(SMALL, 1, 4)
    assert torch.equal(engine.generate(ids, 50), open_engine("graph", weights, dtype="float32").generate(ids, 50))
    assert torch.equal(engine.generate(prompt(SMALL, 1, 60, seed=5), 30), first)
    assert engine.graph is graph


def test_a_graph_draws_anew_at_every_replay_and_repeats_with_its_seed() -> None:
    weights, ids = peaked_weights(SMALL), prompt(SMALL, 1, 4)

    def drawn(seed: int) -> Any:
        return open_engine("graph", weights, dtype="float32", sampling=Sampling(30.0, 0, seed)).generate(ids, 60)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert len(set(drawn(1)[0, 4:].tolist())) > 30  # at this temperature nearly every token is another one


def judged(engine: Engine, config: GPT2Config, positions: int) -> Any:
    weights, ids = peaked_weights(config), prompt(config, 1, positions)
    dtype = getattr(torch, engine.sizes.dtype)
    truth = torch.float64 if dtype == torch.float32 else torch.float32
    with torch.inference_mode():
        reference = build_model(weights, device="cuda", dtype=truth)(ids)[0]
        plain = build_model(weights, device="cuda", dtype=dtype)(ids)[0]
        return compare(reference, plain, forced_logits(engine, ids, 4), 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [2, 65, 1024])
def test_a_prompt_by_our_best_kernels_is_as_near_to_the_reference_as_a_plain_model(dtype: Any, tokens: int) -> None:
    weights, ids = peaked_weights(GPT2_124M), prompt(GPT2_124M, 1, tokens)
    with torch.inference_mode():
        truth = torch.float64 if dtype == torch.float32 else torch.float32
        reference = build_model(weights, device="cuda", dtype=truth)(ids)[0]
        plain, ours = (build_model(weights, device="cuda", dtype=dtype, ops=ops)(ids)[0] for ops in ("torch", "best"))
        assert float(divergence(reference, ours).mean()) <= 1.2 * float(divergence(reference, plain).mean()) + 1e-9


@pytest.mark.parametrize("name", ["graph", "few", "persistent"])
def test_engines_agree_with_float32_in_bfloat16(name: str) -> None:
    weights = peaked_weights(GPT2_124M)
    if why := refusal(name, sizes_of(weights, "bfloat16"), gpu_at_hand()):
        pytest.skip(why)
    engine = open_engine(name, weights)
    assert engine.name == name
    agreement = judged(engine, GPT2_124M, 200)
    assert agreement.wrong == 0, agreement
    assert agreement.kl_mean <= 1.1 * agreement.plain_kl_mean
    ids = prompt(GPT2_124M, 1, 16)
    text = greedy_text(engine, ids, 300)
    with torch.inference_mode():
        reference = build_model(weights, device="cuda")(text)[0]
        plain = build_model(weights, device="cuda", dtype=torch.bfloat16)(text)[0]
    assert compare_greedy(reference, plain, text, 16)[2] == 0


@pytest.mark.parametrize("config", [GPT2Config(n_embd=1024, n_layer=2, n_head=16), GPT2Config(n_embd=1280, n_layer=2, n_head=20)],
                         ids=["medium", "large"])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_graph_takes_wider_models(config: GPT2Config, dtype: str) -> None:
    engine = open_engine("graph", peaked_weights(config), dtype=dtype)
    agreement = judged(engine, config, 80)
    assert agreement.wrong == 0, agreement

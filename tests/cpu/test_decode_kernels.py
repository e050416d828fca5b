"""The decode kernels themselves, run on a CPU (tests/cuda_on_cpu) against the model in float32."""

from __future__ import annotations

import functools
import re
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from analysis.formats.errors import InputError
from harness.decode.check import compare, compare_greedy, forced_logits
from harness.decode.engines import sizes_of
from harness.weights import build_model
from kernels.decode import device, few, persistent
from kernels.decode.contract import Gpu, Sampling, Sizes
from kernels.decode.plan import pack, plan, unpack
from tests import decode_on_cpu as on_cpu
from tests.decode_on_cpu import CONFIG, FEW, PERSISTENT, TINY

H200 = Gpu("NVIDIA H200", (9, 0), 132, 232448)
GPT2_SIZES = Sizes(12, 768, 12, 3072, 50257, 1024, 1e-5, 1, 1024, "bfloat16")

compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed: the kernels do not run here")


pytestmark = pytest.mark.usefixtures("one_thread")


def prompt(tokens: int, seed: int = 3) -> Any:
    return torch.randint(CONFIG.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(seed))


def logits_of(model: Any, ids: Any) -> Any:
    with torch.inference_mode():
        return model(ids)[0].float()


def plain(ids: Any) -> Any:
    return logits_of(build_model(on_cpu.rounded_weights(), dtype=torch.bfloat16), ids)


@functools.cache
def text_of_one_launch(prompt_tokens: int, seed: int, tokens: int) -> Any:
    """What the kernel decodes, the whole text in one launch, with usual settings."""
    return on_cpu.engine().generate(prompt(prompt_tokens, seed), tokens)


# --- weights as the kernels read them ---


@pytest.mark.parametrize("blocks", [8, 10, 14])
def test_packed_weights_hold_every_unit_once_and_unpack(blocks: int) -> None:
    sizes, weights = sizes_of(on_cpu.rounded_weights(), "bfloat16"), on_cpu.rounded_weights().state
    made = plan(TINY, sizes.layers, sizes.vocabulary, blocks)
    assert np.array_equal(np.sort(made.order[made.order >= 0]), np.arange(12 * 64 * 2 + 97))
    assert (made.order < 0).sum() == 104 - 97  # the vocabulary fills 13 tiles but for 7 rows
    assert made.begins[0] == 0
    assert 8 * made.begins[-1] == len(made.order)
    found = unpack(pack(weights, sizes, made), sizes, made)
    assert len(found) == 4 * sizes.layers + 1
    for name, matrix in found.items():
        assert torch.equal(matrix, weights[name])


# --- what they compute ---


@compiles
@pytest.mark.parametrize("launcher", [PERSISTENT, FEW])
@pytest.mark.parametrize("prompt_tokens", [1, 30])
def test_logits_are_nearer_to_float32_than_those_of_a_bfloat16_model(launcher: str, prompt_tokens: int) -> None:
    ids = prompt(prompt_tokens + 12)
    steps = forced_logits(on_cpu.engine(launcher), ids, prompt_tokens)
    said = compare(logits_of(on_cpu.reference(), ids), plain(ids), steps, prompt_tokens)
    assert said.good
    assert said.positions == 12
    assert said.kl_mean < said.plain_kl_mean


@compiles
def test_many_tokens_of_one_launch_are_those_of_the_model() -> None:
    engine = on_cpu.engine(seed=1)
    text = engine.generate(prompt(5), 59)
    engine.check()
    same, ties, wrong = compare_greedy(logits_of(on_cpu.reference(), text), plain(text), text, 5)
    assert (same + ties, wrong) == (59, 0)
    assert len(set(text[0].tolist())) > 12  # no text that repeats itself


@compiles
def test_few_launches_give_the_same_text_as_one() -> None:
    assert torch.equal(on_cpu.engine(FEW).generate(prompt(3, 9), 12), text_of_one_launch(3, 9, 12))


@compiles
def test_a_second_prompt_sees_nothing_of_the_first() -> None:
    engine = on_cpu.engine()
    engine.generate(prompt(30, 8), 6)
    assert torch.equal(engine.generate(prompt(4), 10), text_of_one_launch(4, 3, 10))


# --- mutants: peaked attention shows each of them ---

MUTANTS = {
    "a shifted position": (
        "step.cuh",
        "int64_t>(position_) * (S::CHANNELS / 2)",
        "int64_t>(position_ + 1) * (S::CHANNELS / 2)",
    ),
    "a stale row": (
        "step.cuh",
        "cache_place(layer, position_);",
        "cache_place(layer, position_ ^ 1);",
    ),
    "a dropped head": (
        "step.cuh",
        "out[1] = divided(sum[1], weight);",
        "out[1] = divided(sum[1], weight); if (head_ == 1) out[0] = out[1] = 0.0f;",
    ),
}


@compiles
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_kernels_is_found(name: str) -> None:
    source, old, new = MUTANTS[name]
    mutant = device.Library.load(on_cpu.compiled({source: (old, new)}), TINY)
    engine, ids = on_cpu.engine(of=mutant), prompt(16, 5)
    engine.state.keys.zero_()
    engine.state.values.zero_()  # what is not a number would end the kernel
    said = compare(logits_of(on_cpu.reference(), ids), plain(ids), forced_logits(engine, ids, 4), 4)
    assert said.wrong
    assert said.kl_mean > 10 * said.plain_kl_mean


# --- what cannot go on ends, and says so ---


@compiles
@pytest.mark.parametrize(
    ("words", "waited"),
    [
        (0, "x (after attention|of its cluster) in layer 0"),
        (16, "(x in layer 0|x of its cluster in layer 1)"),
        (32, "x (after attention|of its cluster) in layer 1"),
        (64, "the largest logit behind the last layer"),
    ],
)
def test_a_word_that_never_comes_ends_the_kernel(words: int, waited: str) -> None:
    engine = on_cpu.engine(patience_ns=100_000_000, silent=(3, words))
    engine.generate(prompt(4), 4)
    with pytest.raises(InputError, match=rf"^The kernel ended itself: block \d+ waited 0.1 s for {waited}; .*\.$"):
        engine.check()
    engine.program.launch(1)  # nothing runs any more until there is a new prompt
    assert engine.program.trouble()
    on_cpu.library().launchers.cpu_settings(1, 0, -1, 0)
    text = engine.generate(prompt(4), 6)
    engine.check()
    assert torch.equal(text, text_of_one_launch(4, 3, 6))


def kept(engine: Any) -> tuple[Any, ...]:
    """What a launch that finds a fault may not change: token, position, text."""
    return tuple(getattr(engine.state, name).tolist() for name in ("token", "position", "ids"))


@compiles
@pytest.mark.parametrize("launcher", [PERSISTENT, FEW])
def test_a_full_cache_is_one_sentence(launcher: str) -> None:
    engine = on_cpu.engine(launcher)
    engine.prefill(prompt(4))
    engine.state.position.fill_(64 if launcher == FEW else 63)
    before, keys = kept(engine), engine.program.buffers.keys.clone()
    engine.program.launch(2)
    assert engine.program.trouble() == ("The kernel has no room for more tokens in a cache of 64: start a new text.")
    assert kept(engine) == before
    assert torch.equal(engine.program.buffers.keys[:, :, :, 1:].nan_to_num(), keys[:, :, :, 1:].nan_to_num())


# --- what they refuse ---


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dtype": "float32"}, "Engine few decodes in bfloat16, not in float32."),
        ({"batch": 2}, "Engine few decodes one sequence at a time, not 2."),
        (
            {"width": 1024, "heads": 16, "inner": 4096},
            "Engine few is compiled for a width of 768, 12 heads and an MLP of 3072, and its ring fits no other; the "
            "model has 1024, 16 and 4096.",
        ),
        ({"capacity": 2048}, "Engine few keeps a context of at most 1024 tokens, not of 2048."),
    ],
)
def test_sizes_that_do_not_fit_are_one_sentence(changed: dict[str, Any], said: str) -> None:
    assert few.refuses(replace(GPT2_SIZES, **changed), H200) == said
    assert persistent.refuses(replace(GPT2_SIZES, **changed), H200) == said.replace("few", "persistent")


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (
            Gpu("NVIDIA L4", (8, 9), 58, 101376),
            "Engine persistent is written for GPUs of compute capability 9.0, and NVIDIA L4 has 8.9.",
        ),
        (
            Gpu("NVIDIA GH200", (9, 0), 72, 232448),
            "Engine persistent needs 96 multiprocessors, and NVIDIA GH200 has 72.",
        ),
        (
            Gpu("NVIDIA H200", (9, 0), 132, 101376),
            "Engine persistent needs 224 KiB of shared memory a block, and NVIDIA H200 has 99.",
        ),
    ],
)
def test_a_gpu_that_does_not_fit_is_one_sentence(gpu: Gpu, said: str) -> None:
    assert persistent.refuses(GPT2_SIZES, gpu) == said


def test_no_compiler_or_gpu_is_one_sentence() -> None:
    if not torch.cuda.is_available():
        assert persistent.refuses(GPT2_SIZES, H200) == "kernels/decode needs an NVIDIA GPU and torch sees none."


def test_the_call_has_the_fields_of_the_header() -> None:
    text = (on_cpu.KERNELS / "decode.h").read_text("utf-8")
    declared = re.findall(r"^  (?:const )?\w+\*? (\w+);", text.split("struct DecodeCall")[1], re.MULTILINE)
    assert declared == [name for name, _ in device.Call._fields_]


def test_sampling_is_refused() -> None:
    with pytest.raises(ValueError, match="engine few takes the largest logit only"):
        few.make({}, GPT2_SIZES, None, Sampling(temperature=1.0))


# --- where the time goes ---


# --- the command for a machine with a GPU ---

"""What stands around the decode kernels: packed weights, the call's fields, the models and GPUs that they refuse."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from harness.gpt2 import GPT2Config
from kernels.build import FOLDER
from kernels.decode import device, few, persistent
from kernels.decode.contract import Gpu, Sampling, Sizes
from kernels.decode.plan import Shape, pack, plan, unpack
from studies.decode.measure_agreement import peaked_weights
from studies.decode.measure_engines import sizes_of

pytestmark = pytest.mark.studies

H200 = Gpu("NVIDIA H200", (9, 0), 132, 232448)
GPT2_SIZES = Sizes(12, 768, 12, 3072, 50257, 1024, 1e-5, 1, 1024, "bfloat16")

TINY = Shape(width=64, heads=4, warps=2, cluster=2, capacity=128)
CONFIG = GPT2Config(vocab_size=97, n_positions=64, n_embd=64, n_layer=2, n_head=4)


# --- weights as the kernels read them ---


@pytest.mark.parametrize("blocks", [8, 10, 14])
def test_packed_weights_hold_every_unit_once_and_unpack(blocks: int) -> None:
    made_up = peaked_weights(CONFIG)
    sizes, weights = sizes_of(made_up, "bfloat16"), made_up.state
    made = plan(TINY, sizes.layers, sizes.vocabulary, blocks)
    assert np.array_equal(np.sort(made.order[made.order >= 0]), np.arange(12 * 64 * 2 + 97))
    assert (made.order < 0).sum() == 104 - 97  # the vocabulary fills 13 tiles but for 7 rows
    assert made.begins[0] == 0
    assert 8 * made.begins[-1] == len(made.order)
    found = unpack(pack(weights, sizes, made), sizes, made)
    assert len(found) == 4 * sizes.layers + 1
    for name, matrix in found.items():
        assert torch.equal(matrix, weights[name])


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
    text = (FOLDER / "decode" / "decode.h").read_text("utf-8")
    declared = re.findall(r"^  (?:const )?\w+\*? (\w+);", text.split("struct DecodeCall")[1], re.MULTILINE)
    assert declared == [name for name, _ in device.Call._fields_]


def test_sampling_is_refused() -> None:
    with pytest.raises(ValueError, match="engine few takes the largest logit only"):
        few.make({}, GPT2_SIZES, None, Sampling(temperature=1.0))

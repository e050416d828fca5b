"""The decode kernels themselves, run on a CPU (tests/cuda_on_cpu) against the model in float32."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.capture.model import Capture
from analysis.facts import Facts
from analysis.formats.decode import PHASES
from analysis.formats.errors import InputError
from harness.decode.check import compare, compare_greedy, forced_logits, peaked_weights
from harness.decode.engines import sizes_of
from harness.gpt2 import GPT2Config
from harness.weights import Weights, build_model
from kernels.build import BuildError
from kernels.decode import device, few, persistent
from kernels.decode.contract import Gpu, Sampling, Sizes
from kernels.decode.plan import inner_end, pack, pack_vectors, part, plan, unpack
from studies.decode.tables import build_phases
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


@pytest.mark.parametrize(("blocks", "heads", "others"), [(96, 12, 0), (120, 10, 8), (128, 10, 6)])
def test_the_blocks_of_gpt2_stream_what_their_rings_hold(blocks: int, heads: int, others: int) -> None:
    tiles = np.diff(plan(device.GPT2, 12, 50257, blocks).begins)
    assert tiles.sum() == 12 * 12 * 768 // 8 + 6283
    head = np.diff([part(6283, block, blocks)[0] for block in range(blocks + 1)])
    layer = (tiles - head) // 12
    # q, k, v and attention's projection of a head, and 3 or 4 tiles of each projection of the MLP
    assert set(layer[:96]) == {4 + 2 * 4} if blocks == 96 else {heads}
    assert set(layer[96:]) <= {others}
    assert layer.max() <= device.PERSISTENT_SLOTS


def test_a_lane_finds_in_a_tall_tile_four_rows_that_follow_each_other() -> None:
    sizes, weights = sizes_of(on_cpu.rounded_weights(), "bfloat16"), on_cpu.rounded_weights().state
    made = plan(TINY, sizes.layers, sizes.vocabulary, 10)
    tile = int(made.begins[3]) + 3  # of block 3: behind q, k and v
    lanes = pack(weights, sizes, made)[tile, : 8 * 64].reshape(TINY.warps, 32, 4, 2)
    matrix = weights["h.0.attn.c_proj.weight"]  # (columns, rows)
    for warp in range(TINY.warps):
        for product in range(4):
            for lane in range(32):
                column, group = lane % 4 * 2, lane // 4
                row = warp * 32 + group * 4 + product
                expected = matrix[3 * 8 + column : 3 * 8 + column + 2, row]
                assert torch.equal(lanes[warp, lane, product], expected)


def test_behind_a_tile_lie_the_products_with_a_norm_and_the_biases() -> None:
    sizes, weights = sizes_of(on_cpu.rounded_weights(), "bfloat16"), on_cpu.rounded_weights().state
    bf16 = {name: tensor.bfloat16() for name, tensor in weights.items()}
    made = plan(TINY, sizes.layers, sizes.vocabulary, 8)
    constants = pack(bf16, sizes, made)[:, 8 * 64 :].contiguous().view(torch.float32).reshape(-1, 2)
    units = {int(unit): at for at, unit in enumerate(made.order)}
    norm = torch.stack([weights["h.1.ln_2.weight"], weights["h.1.ln_2.bias"]], 1)
    row = weights["h.1.mlp.c_fc.weight"].t()[77] @ norm
    row[1] += weights["h.1.mlp.c_fc.bias"][77]
    assert torch.allclose(constants[units[12 * 64 + 4 * 64 + 77]], row, atol=1e-5)
    for column in range(12 * 64 + 8 * 64, 2 * 12 * 64):  # those of the MLP's second projection need nothing
        assert not constants[units[column]].any()
    last = torch.stack([weights["ln_f.weight"], weights["ln_f.bias"]], 1)
    assert torch.allclose(constants[units[2 * 12 * 64 + 96]], weights["wte.weight"][96] @ last, atol=1e-5)
    assert not constants[torch.from_numpy(made.order < 0)].any()


def test_norms_and_biases_lie_where_the_kernel_looks() -> None:
    sizes, weights = sizes_of(on_cpu.rounded_weights(), "bfloat16"), on_cpu.rounded_weights().state
    vectors = pack_vectors(weights, sizes)
    assert len(vectors) == 13 * 64 * 2 + 2 * 64
    second = vectors[13 * 64 :]
    assert torch.equal(second[5 * 64 : 6 * 64], weights["h.1.attn.c_proj.bias"])
    assert torch.equal(second[6 * 64 : 7 * 64], weights["h.1.ln_2.weight"])
    assert torch.equal(second[12 * 64 : 13 * 64], weights["h.1.mlp.c_proj.bias"])
    assert torch.equal(vectors[-128:-64], weights["ln_f.weight"])


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
@pytest.mark.parametrize(("most", "slots", "seed", "threads"), [(1, 12, 2, 1), (7, 16, 3, 1), (64, 13, 4, 3)])
def test_launches_rings_and_the_order_of_threads_change_nothing(most: int, slots: int, seed: int, threads: int) -> None:
    engine = on_cpu.engine(most=most, slots=slots, seed=seed, threads=threads)
    assert torch.equal(engine.generate(prompt(4, 8), 12), text_of_one_launch(4, 8, 12))


@compiles
def test_few_launches_give_the_same_text_as_one() -> None:
    assert torch.equal(on_cpu.engine(FEW).generate(prompt(3, 9), 12), text_of_one_launch(3, 9, 12))


@compiles
def test_a_second_prompt_sees_nothing_of_the_first() -> None:
    engine = on_cpu.engine()
    engine.generate(prompt(30, 8), 6)
    assert torch.equal(engine.generate(prompt(4), 10), text_of_one_launch(4, 3, 10))


@compiles
@pytest.mark.slow
def test_the_shape_of_gpt2_is_right_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Width 768, 12 heads, clusters of 8 blocks of 8 warps, far behind the prompt; of layers and tokens only a few."""
    config = GPT2Config(vocab_size=1001, n_layer=1)
    weights = on_cpu.rounded(peaked_weights(config))
    monkeypatch.setattr(on_cpu, "rounded_weights", lambda: weights)
    gpt2 = device.Library.load(on_cpu.compiled(more=("-shared", "-fPIC", "-DSHAPE=768,12,8,8,1024")), device.GPT2)
    ids = torch.randint(1001, (1, 701), generator=torch.Generator().manual_seed(3))
    expected = logits_of(build_model(on_cpu.rounded_weights()), ids)
    engine = on_cpu.engine(of=gpt2, slots=device.PERSISTENT_SLOTS)
    said = compare(expected, plain(ids), forced_logits(engine, ids, 700), 700)
    assert (said.positions, said.wrong) == (1, 0)
    assert said.kl_mean < said.plain_kl_mean


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


@compiles
def test_a_launch_that_does_not_wait_for_x_of_the_one_before_is_found() -> None:
    change = ("place_of_rows(after), true,", "place_of_rows(after), false,")
    early = device.Library.load(on_cpu.compiled({"step.cuh": change}), TINY)
    engine, ids = on_cpu.engine(FEW, of=early, patience_ns=100_000_000), prompt(16, 5)
    with suppress(InputError):  # the kernel may wait in vain for the rest of a sum
        assert compare(logits_of(on_cpu.reference(), ids), plain(ids), forced_logits(engine, ids, 4), 4).wrong


@compiles
@pytest.mark.parametrize("launcher", [PERSISTENT, FEW])
def test_scores_far_above_that_of_the_token_itself_are_right(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention's weights are relative to the token's own score: here others exceed it by more than float32 holds."""
    state = {name: tensor.clone() for name, tensor in on_cpu.rounded_weights().state.items()}
    for layer in range(2):
        state[f"h.{layer}.attn.c_attn.weight"][:, : 2 * CONFIG.n_embd] *= 6.0
    weights = on_cpu.rounded_weights()
    strong = on_cpu.rounded(Weights(weights.config, state, weights.source, weights.sha256))
    monkeypatch.setattr(on_cpu, "rounded_weights", lambda: strong)
    ids = prompt(24, 5)
    expected, usual = logits_of(build_model(strong), ids), plain(ids)
    said = compare(expected, usual, forced_logits(on_cpu.engine(launcher), ids, 4), 4)
    assert said.good
    change = ("return safely || weight < MOST_WEIGHT;", "return true;")
    careless = device.Library.load(on_cpu.compiled({"step.cuh": change}), TINY)
    engine = on_cpu.engine(launcher, of=careless)
    engine.prefill(ids[:, :4])
    for token in ids[0, 4:]:
        engine.force(token[None])
        engine.step()
    assert engine.program.trouble().endswith("or not a number: use engine graph.")


def test_a_mutant_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ring\.cuh holds 'nothing of this' 0 times"):
        on_cpu.compiled({"ring.cuh": ("nothing of this", "")})


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


@compiles
@pytest.mark.parametrize("launcher", [PERSISTENT, FEW])
def test_what_no_sum_of_x_can_hold_ends_the_kernel(launcher: str) -> None:
    engine = on_cpu.engine(launcher)
    engine.prefill(prompt(4))
    engine.state.values[1, 0, 0, 2, 5] = torch.nan  # layer 1, head 0, row 2
    engine.program.begin()
    before = kept(engine)
    for _ in range(2):  # nothing goes on
        engine.program.launch(1)
        assert engine.program.trouble() == (
            "In layer 1 something that is added to x is too large for engines few and persistent, or not a number: use "
            "engine graph."
        )
        assert kept(engine) == before


def add_in_every_cluster(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """Let each cluster of the first MLP add `part` to element 0 of x."""
    state = {name: tensor.clone() for name, tensor in on_cpu.rounded_weights().state.items()}
    state["h.0.mlp.c_fc.weight"].zero_()
    state["h.0.mlp.c_fc.bias"].fill_(8.0)  # which GELU hardly changes
    state["h.0.mlp.c_proj.weight"].zero_()
    ends = [inner_end(32, block, 10) for block in range(-1, 10)]  # 10 blocks, two of them a cluster
    for begin, end in pairwise(ends):
        rows = slice(8 * begin, 8 * end)
        state["h.0.mlp.c_proj.weight"][rows, 0] = part / 2 / 8 / (8 * (end - begin))
    weights = on_cpu.rounded_weights()
    changed = on_cpu.rounded(Weights(weights.config, state, weights.source, weights.sha256))
    monkeypatch.setattr(on_cpu, "rounded_weights", lambda: changed)


@compiles
@pytest.mark.parametrize("part", [3600.0, -4000.0])
def test_a_sum_holds_the_largest_parts_of_all_clusters(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    add_in_every_cluster(monkeypatch, part)
    engine = on_cpu.engine()
    text = engine.generate(prompt(4), 6)
    engine.check()
    expected = logits_of(build_model(on_cpu.rounded_weights()), text)
    same, ties, wrong = compare_greedy(expected, plain(text), text, 4)
    assert (same + ties, wrong) == (6, 0)


@compiles
def test_a_part_that_is_too_large_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    add_in_every_cluster(monkeypatch, 4200.0)
    engine = on_cpu.engine()
    engine.prefill(prompt(4))
    engine.program.launch(1)
    assert engine.program.trouble().startswith("In layer 0 something that is added to x is too large")


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


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["persistent", "few"])
def test_the_thread_sanitizer_finds_no_race(launcher: str) -> None:
    more = ("-fsanitize=thread", "-Wno-tsan", "-Wno-unknown-pragmas")
    program = on_cpu.compiled(more=more, main="stress.cpp")
    done = subprocess.run([program, "0", "2", "1", launcher], capture_output=True, text=True, check=False)
    if "FATAL: ThreadSanitizer" in done.stderr or "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run on this machine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 runs of 2 tokens gave one text" in done.stdout


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


def test_too_few_resident_blocks_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        def resident_blocks(self, slots: int) -> int:
            return 88

    monkeypatch.setattr(device, "gpu_library", Small)
    said = persistent.refuses(GPT2_SIZES, H200)
    assert said.startswith("Engine persistent needs 96 blocks that run at once, and NVIDIA H200 holds 88:")


def test_no_compiler_or_gpu_is_one_sentence() -> None:
    if not torch.cuda.is_available():
        assert persistent.refuses(GPT2_SIZES, H200) == "kernels/decode needs an NVIDIA GPU and torch sees none."


@compiles
def test_an_error_of_cuda_and_a_ring_that_is_too_small_are_refused() -> None:
    with pytest.raises(BuildError, match=r"^kernels/decode cannot run on this GPU: CUDA says 'no CUDA error.*\.$"):
        on_cpu.library().check(1)
    with pytest.raises(ValueError, match="a ring has 12 to 16 slots, not 11"):
        on_cpu.engine(slots=11)


def test_the_call_has_the_fields_of_the_header() -> None:
    text = (on_cpu.KERNELS / "decode.h").read_text("utf-8")
    declared = re.findall(r"^  (?:const )?\w+\*? (\w+);", text.split("struct DecodeCall")[1], re.MULTILINE)
    assert declared == [name for name, _ in device.Call._fields_]


def test_sampling_is_refused() -> None:
    with pytest.raises(ValueError, match="engine few takes the largest logit only"):
        few.make({}, GPT2_SIZES, None, Sampling(temperature=1.0))


# --- where the time goes ---


@compiles
def test_stamps_cover_all_of_a_token_in_every_block() -> None:
    engine = on_cpu.engine(stamped=2)
    engine.generate(prompt(4), 3)
    phases = engine.program.phases()
    each = len(device.LAYER_PHASES) * 2 + len(device.LAST_PHASES)
    assert len(phases) == 2 * 10 * each
    for first, then in pairwise(phases):
        assert first.start_ns <= first.end_ns
        if first.token == then.token and first.block == then.block:
            assert first.end_ns == then.start_ns
    assert {one.layer for one in phases} == {0, 1, 2}
    assert phases[0].phase == device.EMBEDDING
    assert {one.phase for one in phases if one.layer == 2} == set(device.LAST_PHASES)
    # the table of the study adds them up to the whole token
    rows = pd.DataFrame([("persistent", *one) for one in phases], columns=PHASES.names)
    table = build_phases(Facts(Capture(ours={"decode_phases": rows})))
    assert table["share_frac"].sum() == pytest.approx(1)
    whole = [one for one in phases if one[:2] == (0, 0)]
    assert whole[-1].end_ns - whole[0].start_ns == sum(one.end_ns - one.start_ns for one in whole)
    # a block cannot have x before the last one has published its part
    ready = min(one.end_ns for one in phases if one[:1] == (0,) and one.phase == "wait for x" and one.layer == 1)
    assert ready > max(one.start_ns for one in phases if one[:1] == (0,) and one.phase == "mlp" and one.layer == 0)


# --- the command for a machine with a GPU ---


def stress(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(on_cpu.ROOT / "tests/gpu/decode_stress.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def test_the_stress_command_prints_what_it_runs() -> None:
    said = stress("-n", "5000").stdout
    assert "+ build/decode_stress 5 1000 2\n" in said
    assert said.count("compute-sanitizer") == 6
    assert "compute-sanitizer" not in stress("-n", SANITIZE="no").stdout
    swept = stress("-n", SWEEP="yes").stdout
    assert f"+ build/decode_stress 10 200 0 persistent {device.KEPT}\n" in swept
    wrong = stress("-n", "many")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)

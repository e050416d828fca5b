"""GPT-2 on several ranks: the same logits as one process, and an end in one sentence whatever goes wrong."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.formats.errors import InputError, UsageError
from analysis.formats.multi_gpu import MULTI_GPU
from analysis.formats.ranges import WARM_UP
from analysis.formats.ranks import PROCESS_RANKS
from harness.gpt2 import GPT2Config
from harness.weights import build_model, load_weights
from studies.multi_gpu import measure, measure_check, measure_ranks, measure_trap
from studies.multi_gpu.claims import FORWARD, OPS, Sizes
from studies.multi_gpu.measure_parallel import TensorParallelGPT2, own, shares
from studies.multi_gpu.measure_ranks import Watch, World, check_devices, launch
from tests import rank_work
from tests.ranks import Ranks, start

pytestmark = pytest.mark.xdist_group("ranks")  # one worker starts the processes, once


@pytest.fixture(scope="module")  # they wait for orders, and end on their own some time after the last
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def three() -> Iterator[Ranks]:
    ranks = Ranks(3)
    yield ranks
    ranks.close()


# --- the same as one process ---


@pytest.mark.parametrize("size", ["two", "three"])
@pytest.mark.parametrize(("model", "config"), [("small", measure_check.SMALL), ("uneven", measure_check.UNEVEN)])
def test_every_mode_computes_what_one_process_does(
    size: str, model: str, config: GPT2Config, request: pytest.FixtureRequest
) -> None:
    ranks: Ranks = request.getfixturevalue(size)
    first, *others = ranks.run(rank_work.check, model, config, measure_check.SHAPES)
    assert all(found == [] for found in others)  # the first rank alone has the results
    assert len(first) == len(measure_check.SHAPES) * 4
    for entry in first:
        assert entry["error"] <= measure_check.WITHIN, entry
        assert entry["logit"] > 1, entry  # else the check would pass whatever is computed
        assert entry["tokens_equal"], entry
        assert entry["ranks"] == ranks.size


def test_the_shapes_of_the_checks_divide_and_do_not() -> None:
    batches = [batch for batch, _ in measure_check.SHAPES]
    for size in (2, 3):
        assert any(batch % size == 0 for batch in batches)
        assert any(batch > size and batch % size for batch in batches)
        assert any(batch < size for batch in batches)
        assert measure_check.SMALL.n_head % size == 0
        assert measure_check.UNEVEN.n_head % size
        assert measure_check.UNEVEN.inner % size


def test_of_equal_logits_the_first_wins_wherever_they_lie(two: Ranks, three: Ranks) -> None:
    assert two.run(rank_work.equal_logits) == [5, 5]
    assert three.run(rank_work.equal_logits) == [5, 5, 5]


def test_a_layer_has_two_all_reduces(two: Ranks) -> None:
    for paths in two.run(rank_work.paths):
        reduced = [path for path in paths if path.endswith("/all_reduce")]
        assert reduced == [
            f"gpt2_tp/prefill/h.{n}/{part}/proj/all_reduce" for n in range(2) for part in ("attn", "mlp")
        ]
        assert "argmax" in paths


def test_ranks_share_the_parameters_of_heads_and_columns(two: Ranks, three: Ranks) -> None:
    config = measure_check.SMALL
    layer = 4 * config.n_embd**2 + 2 * config.n_embd * config.inner + 3 * config.n_embd + config.inner
    whole = sum(tensor.numel() for tensor in load_weights(config=config).state.values())
    for ranks in (two, three):
        held = whole - config.n_layer * (layer - layer // ranks.size)
        assert ranks.run(rank_work.parameters) == [held] * ranks.size


@pytest.mark.parametrize(
    ("total", "parts", "dealt"), [(6, 3, [2, 2, 2]), (5, 3, [2, 2, 1]), (1, 3, [1, 0, 0]), (0, 2, [0, 0])]
)
def test_what_does_not_divide_is_dealt_out(total: int, parts: int, dealt: list[int]) -> None:
    assert shares(total, parts) == dealt
    slices = [own(total, fake_world(rank, parts)) for rank in range(parts)]
    assert [place for one in slices for place in range(total)[one]] == list(range(total))


def fake_world(rank: int, size: int) -> World:
    return World(rank, size, torch.device("cpu"), None)  # type: ignore[arg-type]


def test_more_ranks_than_heads_is_one_sentence() -> None:
    with (
        pytest.raises(UsageError, match=r"^3 ranks cannot share 2 heads: use 2 ranks or fewer\.$"),
        torch.device("meta"),
    ):
        TensorParallelGPT2(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9), fake_world(0, 3))


# --- times ---


def test_every_workload_is_timed_on_every_rank_alike(two: Ranks) -> None:
    first, second = two.run(rank_work.times, ["dp", "tp"])
    assert first == second  # of each sample the slowest rank counts, and all know it
    assert [(entry["mode"], entry["workload"]) for entry in first] == [
        (mode, name) for mode in ("dp", "tp") for name in ("prefill_b1_t12", "prefill_b3_t12", "decode_b1_ctx10", "decode_b3_ctx10")
    ]  # fmt: skip
    assert all(entry["wall_ns"]["p50"] > 0 and entry["samples"] == measure.LEAST for entry in first)


@pytest.mark.parametrize("mode", ["dp", "tp"])
def test_the_captured_program_runs_and_names_its_ranks(mode: str, two: Ranks, tmp_path: Path) -> None:
    assert two.run(rank_work.capture, mode, str(tmp_path)) == [[], []]
    written = pd.read_csv(tmp_path / "captures" / PROCESS_RANKS.name)
    assert written[["process_rank", "ranks", "local_rank"]].to_numpy().tolist() == [[0, 2, 0], [1, 2, 1]]
    assert written["pid"].nunique() == 2


@pytest.mark.parametrize("mode", ["dp", "tp"])
def test_all_jobs_run_once_in_a_warm_up_inside_the_window(mode: str, two: Ranks, tmp_path: Path) -> None:
    """The warm-up meets first, then has one range alone, and each job runs in it as often as after it."""
    root = {"dp": "gpt2_dp", "tp": "gpt2_tp"}[mode]
    for found in two.run(rank_work.captured, mode, str(tmp_path)):
        inside = found[found.index("open window") + 1 : found.index("close window")]
        assert inside[:2] == [f"push {WARM_UP}", "barrier"]
        end = inside.index("pop")
        assert inside[2:end] == ["run", "barrier"] * 2
        pushed = [what.removeprefix("push ") for what in inside[end:] if what.startswith("push ")]
        assert pushed[0] == root
        assert [what for what in inside[end:] if what in ("run", "barrier")] == ["run", "barrier"] * 2


def test_the_program_writes_what_each_step_adds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["times", *rank_work.TINY, "--processes", "2", "--modes", "dp", "--out", str(run)]
    ended(start(2, said(tmp_path, 2), rank_work.program, arguments), 0)
    assert measure.main(["trap", *rank_work.TINY, "--processes", "2", "--out", str(run)]) == 0
    document = json.loads((run / "captures" / MULTI_GPU.name).read_text())
    assert MULTI_GPU.check(document, "multi_gpu.json") is document
    assert document["backend"] == "gloo"
    assert [entry["workload"] for entry in document["times"]] == [
        "prefill_b1_t12", "prefill_b3_t12", "decode_b1_ctx10", "decode_b3_ctx10"
    ]  # fmt: skip
    assert {(entry["op"], entry["way"]) for entry in document["trap"]} == {
        (op, way) for op in (*OPS, FORWARD) for way in measure_trap.WAYS
    }
    assert (run / "captures" / "manifest.json").is_file()


def test_the_window_holds_each_call_of_the_trap_with_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    tracer = SimpleNamespace(enabled=True, push=opened.append, pop=lambda: None)
    monkeypatch.setattr(measure, "window", lambda device: nullcontext(tracer))
    arguments = ["capture", *rank_work.TINY, "--mode", "trap", "--processes", "2"]
    assert measure.main([*arguments, "--out", str(tmp_path)]) == 0
    for op in (*OPS, FORWARD):
        first = opened.index(f"{op} trap")
        assert opened[first + 1 : first + 4] == ["allocate and copy", "compute", "copy back"]
    assert opened.count("free") == len((*OPS, FORWARD))


def test_samples_of_a_gpu_that_began_too_early_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake GPU whose host needs 150 ns for its launches: only a hold that is longer gives the true time."""
    holds: list[float] = []

    def once(world: Any, job: Any, hold_ns: float) -> tuple[float, float]:
        holds.append(hold_ns)
        late = hold_ns < 150 or len(holds) == 7
        return (9000.0 if late else 1000.0), float(late)

    monkeypatch.setattr(measure, "once_gpu", once)
    monkeypatch.setattr(measure, "slowest", lambda world, mine: [list(one) for one in mine])
    world: Any = None
    job = measure.Job(None, lambda: None, lambda: None, 1)
    assert measure.gpu_times(world, job, 5, 100) == ([1000.0] * 5, 6)
    assert holds == [100] * 5 + [200] * 5 + [400]
    monkeypatch.setattr(measure, "once_gpu", lambda world, job, hold_ns: (9000.0, 1.0))
    assert measure.gpu_times(world, job, 2, 1) == ([9000.0] * 8, 8)


# --- the trap ---


@pytest.mark.parametrize(("batch", "used"), [(4, 3), (2, 2)])
def test_the_trap_and_its_cure_compute_the_same(batch: int, used: int) -> None:
    devices = [torch.device("cpu")] * 3
    model = build_model(measure_check.random_weights(measure_check.SMALL))
    sizes = Sizes(batch, 8, model.config.n_embd, model.config.n_head)
    with torch.inference_mode():
        ops = list(measure_trap.make_ops(sizes, model, devices[0]))
        assert [op.name for op in ops] == [*OPS, FORWARD]
        for op in ops:
            one, trap, resident = (measure_trap.Slices(op, way, devices) for way in measure_trap.WAYS)
            assert (len(one.devices), len(trap.devices), len(resident.devices)) == (1, used, used)
            expected = one.call()
            torch.testing.assert_close(trap.call(), expected, rtol=0, atol=1e-4)
            torch.testing.assert_close(torch.cat(resident.call()), expected, rtol=0, atol=1e-4)


# --- what goes wrong ---


def said(folder: Path, ranks: int) -> list[str]:
    return [str(folder / f"rank{rank}.txt") for rank in range(ranks)]


def ended(processes: list[Any], *codes: int, within_s: float = 20.0) -> None:
    """Every process ends in time, with these exit codes (one: all with it)."""
    end = time.monotonic() + within_s
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    found = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert found == list(codes if len(codes) > 1 else codes * len(processes))


def test_a_killed_rank_ends_the_others_with_one_sentence(tmp_path: Path) -> None:
    files, began = said(tmp_path, 3), time.monotonic()
    ended(start(3, files, rank_work.wait_for_a_lost_rank, "SIGKILL", 10.0), 3, 3, -signal.SIGKILL)
    assert time.monotonic() - began < 10  # by the connection that closed, long before the limit
    for rank in range(2):
        assert Path(files[rank]).read_text().splitlines() == [
            f"error: Rank {rank} of 3 ended at the second all-reduce: another rank died or did not answer; see that rank's message."
        ]


def test_a_rank_that_stands_still_ends_the_others_with_one_sentence(tmp_path: Path) -> None:
    files = said(tmp_path, 2)
    first, second = start(2, files, rank_work.wait_for_a_lost_rank, "SIGSTOP", 1.5)
    first.join(20)
    second.kill()
    assert first.exitcode == 3
    text = Path(files[0]).read_text()
    assert text.splitlines() == [
        "Rank 0 of 2 ended: no rank answered for 1.5 s at the second all-reduce."
    ] or text.splitlines() == [
        "error: Rank 0 of 2 ended at the second all-reduce: another rank died or did not answer; see that rank's message."
    ]


def test_a_rank_that_is_told_to_stop_says_why() -> None:
    before = signal.getsignal(signal.SIGTERM)
    ends: list[str] = []
    ended = threading.Event()
    watch = Watch("Rank 0 of 2")
    watch._end = lambda sentence: (ends.append(sentence), ended.set())  # type: ignore[method-assign, assignment, return-value]
    watch.beat("a prefill")
    os.kill(os.getpid(), signal.SIGTERM)
    assert ended.wait(5)
    watch.close()
    assert ends == ["Rank 0 of 2 was stopped at a prefill, because another rank ended."]
    assert signal.getsignal(signal.SIGTERM) == before


def test_ranks_with_different_arguments_say_so(tmp_path: Path) -> None:
    files = said(tmp_path, 2)
    ended(start(2, files, rank_work.with_arguments, ["--batch 4", "--batch 8"]), 2)
    assert Path(files[0]).read_text().splitlines() == [
        "error: Rank 1 was started with `--batch 8` and rank 0 with `--batch 4`: start all ranks with the same arguments."
    ]


def test_the_launcher_stops_the_others_and_says_who_died() -> None:
    began = time.monotonic()
    with pytest.raises(
        InputError, match=r"^Rank 1 of 2 was killed by SIGKILL, and the others were stopped: see its message\.$"
    ):
        launch(2, "tests.dying", [])
    assert time.monotonic() - began < 10


def test_what_a_machine_lacks_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    check_devices("cpu", 9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="sees no CUDA GPU: use --device cpu"):
        check_devices("cuda", 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(measure_ranks.dist, "is_nccl_available", lambda: False)
    with pytest.raises(InputError, match="has no NCCL: install its CUDA build"):
        check_devices("cuda", 1)
    monkeypatch.setattr(measure_ranks.dist, "is_nccl_available", lambda: True)
    check_devices("cuda", 1)
    with pytest.raises(InputError, match=r"^2 ranks need 2 GPUs and this machine has one GPU: use --processes 1\.$"):
        check_devices("cuda", 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--batches", "0"], "--processes and --batches must be 1 or more"),
        (["--tokens", "2"], "--tokens must be more than the 2"),
        (["--modes", "one", "--processes", "2"], "--modes one uses one GPU"),
        (["--limit", "0"], "--seconds and --limit must be more than 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        measure.parse(["times", "--device", "cpu", *arguments])

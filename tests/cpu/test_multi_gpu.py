"""GPT-2 on several ranks: the same logits as one process, and an end in one sentence whatever goes wrong."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.formats.multi_gpu import MULTI_GPU
from harness.gpt2 import GPT2Config
from harness.weights import build_model, load_weights
from studies.multi_gpu import measure, measure_check, measure_trap
from studies.multi_gpu.slices import FORWARD, OPS, Sizes
from tests import rank_work
from tests.ranks import Ranks, start

pytestmark = [pytest.mark.studies, pytest.mark.xdist_group("ranks")]  # one worker starts the processes, once


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


# --- times ---


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
            one, trap, copies, resident = (measure_trap.Slices(op, way, devices) for way in measure_trap.WAYS)
            assert (len(one.devices), len(trap.devices), len(resident.devices)) == (1, used, used)
            expected = one.call()
            for sliced in (trap, copies):
                torch.testing.assert_close(sliced.call(), expected, rtol=0, atol=1e-4)
            torch.testing.assert_close(torch.cat(resident.call()), expected, rtol=0, atol=1e-4)


# --- what goes wrong ---


def said(folder: Path, ranks: int) -> list[str]:
    return [str(folder / f"rank{rank}.txt") for rank in range(ranks)]


def ended(processes: list[Any], *codes: int) -> None:
    """Every process ends in time, with these exit codes (one: all with it)."""
    end = time.monotonic() + 120
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    found = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert found == list(codes if len(codes) > 1 else codes * len(processes))


def test_a_killed_rank_ends_the_others_with_one_sentence(tmp_path: Path) -> None:
    files = said(tmp_path, 3)  # by the connection that closed, long before the limit
    ended(start(3, files, rank_work.wait_for_a_lost_rank, "SIGKILL", 300.0), 3, 3, -signal.SIGKILL)
    for rank in range(2):
        assert Path(files[rank]).read_text().splitlines() == [
            f"error: Rank {rank} of 3 ended at the second all-reduce: another rank died or did not answer; see that rank's message."
        ]

"""Skew of ranks: known amounts in programs that are simulated, and injected into captures of real programs."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.diagnosis.rank_cause import own_of
from analysis.diagnosis.savers import StepAnswer
from analysis.diagnosis.step_rules.slow_link import _of_others
from analysis.diagnosis.step_rules.view import Proposal
from analysis.diagnosis.step_tables import answer_steps
from analysis.facts import Facts
from analysis.formats.collectives import Verdict, protocol_of, verdict
from analysis.page.ranks import plot_rank_steps
from tests.answer_key.pack import parts
from tests.answer_key.skew import inject, serial
from tests.declared import missing_of, notes_of
from tests.rank_programs import LAYER, STEP, Program

KEY = Path(__file__).parents[1] / "answer_key"
REAL = {
    "tuned": ("allreduce_late", "a"),
    "blind_screen": ("tensor_parallel", "a"),
    "blind_screen_4": ("gathered_layers", "a"),
}
pytestmark = pytest.mark.slow

AMOUNTS = ((2, 10_000), (4, 100_000), (4, 10_000_000))  # ranks, ns; the test before has 1 ms on two ranks


def facts_of(program: Program, folder: Path, clocks: tuple[tuple[int, float], ...] = ()) -> Facts:
    return Facts(load(program.save(folder, clocks)))


def answer_of(facts: Facts) -> StepAnswer:
    return facts.once(answer_steps)[0]


def slow_of(facts: Facts) -> Proposal | None:
    return next((one.proposal for one in answer_of(facts).replayed if one.proposal.kind == "slow_rank"), None)


def recovered(facts: Facts, skews: list[float] | list[int]) -> list[bool]:
    """Return for each call whether its skew is within 5 % or 5 µs."""
    found, known = facts.collective_calls["skew_ns"].to_numpy(float), np.array(skews, float)
    return list(np.abs(found - known) <= np.maximum(5_000, 0.05 * known))


# Verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "unsure", "said"),
    [
        (0, 25, "TRANSFER"), (0, 26, "UNDECIDED"), (75, 0, "SKEW"), (80, 6, "MIXED"), (50, 40, "MIXED"),
        (50, 41, "UNDECIDED"), (100, 25, "SKEW"), (95, 30, "UNDECIDED"),
    ],
)  # fmt: skip
def test_a_verdict_holds_at_both_ends_of_its_uncertainty(waiting: float, unsure: float, said: str) -> None:
    assert verdict(waiting, 100, unsure) == said


def test_a_call_that_takes_no_time_is_undecided() -> None:
    assert verdict(0, 0, 0) == Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)", "RING LL"),
        ("ncclDevKernel_AllReduce_Sum_f32_TREE_LL128", "TREE LL128"),
        ("ncclDevKernel_AllGather_RING_SIMPLE", "RING SIMPLE"), ("ncclDevKernel_Generic_4(x)", ""), ("gemm_LL", ""),
    ],
)  # fmt: skip
def test_the_name_of_a_kernel_tells_its_protocol(kernel: str, said: str) -> None:
    assert protocol_of(kernel) == said


# Programs with known skew -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYER)
def test_each_call_of_a_simulated_program_has_its_skew_its_last_rank_and_its_verdict(kind: str, tmp_path: Path) -> None:
    program = Program(kind, late=1_000_000)
    facts = facts_of(program, tmp_path)
    calls = facts.collective_calls
    assert all(recovered(facts, program.skews))
    late = calls[calls["skew_ns"] > 900_000]
    assert len(late) == program.steps
    assert set(late["last"]) == {"rank 1"}
    assert set(late["verdict"]) == {"SKEW"}
    assert set(calls["verdict"]) <= {"SKEW", "TRANSFER"}
    assert calls["channels"].eq(24).all()
    assert calls["protocol"].eq("RING LL").all()
    slow = slow_of(facts)
    assert slow is not None
    assert slow.about == "Rank 1"
    assert "step/layer.2, " in slow.sentence


@pytest.mark.parametrize(("ranks", "amount"), AMOUNTS)
def test_skew_of_simulated_programs_is_recovered_and_its_rank_and_layer_are_named(
    ranks: int, amount: int, tmp_path: Path
) -> None:
    right: list[bool] = []
    for number, kind in enumerate(LAYER):
        if (kind, ranks) == ("pp", 4):
            continue  # the partners of messages among four ranks are not in a capture
        program = Program(kind, ranks=ranks, slow=number % ranks, layer=number % 4, late=amount, seed=number)
        facts = facts_of(program, tmp_path / kind)
        right += recovered(facts, program.skews)
        if amount >= 1_000_000:  # over a fifth of its step; the two smaller amounts are below a thirtieth
            slow = slow_of(facts)
            assert slow is not None
            assert slow.about == f"Rank {program.slow}"
            assert f"step/layer.{program.layer}, " in slow.sentence
    assert np.mean(right) >= 0.95


def test_clean_programs_have_no_slow_rank_and_no_skew(tmp_path: Path) -> None:
    for seed in range(5):  # of each kind one
        program = Program(list(LAYER)[seed % 5], ranks=2 + 2 * (seed % 2), seed=seed, jitter=0.005)
        facts = facts_of(program, tmp_path / str(seed))
        assert "slow_rank" not in {one.proposal.kind for one in answer_of(facts).savers}
        assert not set(facts.collective_calls["verdict"]) & {"SKEW", "MIXED"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"late": 500_000}, "500 µs more work on its GPU than the mean of the others in each step, in range step/layer.2, "),
        ({"own": 500_000}, "Rank 1 runs kernels that the others do not: "),
        ({"factor": 1.5}, "Every kernel of rank 1 takes about 1.50 times as long as on the others, with the same grids"),
        ({"idle": 800_000}, "The host of rank 1 works 800 µs longer in each step than the mean of the others"),
    ],
)  # fmt: skip
def test_the_cause_of_a_late_rank_is_named(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    slow = slow_of(facts_of(Program("tp", **more, jitter=0.001), tmp_path))
    assert slow is not None
    assert said.replace("500 µs", "") in slow.sentence.replace("500 µs", "")


def test_equal_shares_save_half_of_what_one_of_two_ranks_has_more(tmp_path: Path) -> None:
    answer = answer_of(facts_of(Program("ddp", late=2_000_000), tmp_path))
    slow = next(one for one in answer.savers if one.proposal.kind == "slow_rank")
    assert slow.saves_ns.low is not None
    assert slow.saves_ns.high is not None
    assert slow.saves_ns.low <= 1_000_000 <= slow.saves_ns.high
    exposed = next(one for one in answer.replayed if one.proposal.kind == "exposed_communication")
    assert (exposed.saves_ns.high or 0) < 800_000  # of 160 µs of transfer; the wait for the rank is none of it


def test_a_slow_link_is_named_with_its_channels(tmp_path: Path) -> None:
    answer = answer_of(facts_of(Program("tp", ranks=4, transfer=600_000), tmp_path))
    first = answer.savers[0]
    assert first.proposal.kind == "slow_link"
    assert "take 4.81 ms on rank" in first.proposal.sentence
    assert "channel" not in first.proposal.sentence  # 24 are not few
    assert (first.saves_ns.high or 0) <= 8 * 601_000  # no more than they take
    left = 25_000 + 4_194_304 * 1.5 / 0.6 / 450  # ns: what its NVLink needs for 4 MB on four ranks
    assert first.proposal.time_ns == pytest.approx(8 * (600_000 - left), rel=0.01)
    assert "slow_link" not in {
        one.proposal.kind for one in answer_of(facts_of(Program("tp", ranks=4), tmp_path / "sound")).replayed
    }


def test_a_link_of_unknown_speed_is_not_called_slow(tmp_path: Path) -> None:
    unknown = Program("tp", transfer=600_000, models=("Some GPU",) * 2)
    assert "slow_link" not in {one.proposal.kind for one in answer_of(facts_of(unknown, tmp_path)).replayed}
    nodes = facts_of(Program("tp", transfer=600_000), tmp_path / "nodes", ((0, 0.0), (5_000_000, 0.0)))
    assert "slow_link" not in {one.proposal.kind for one in answer_of(nodes).replayed}


def test_a_straggling_first_step_is_named_with_its_rank(tmp_path: Path) -> None:
    facts = facts_of(Program("ddp", ranks=4, slow=2, first=50_000_000), tmp_path)
    said = "Rank 2 is 50 ms later in step 1 than in the steady steps, and the others wait for it: "
    assert any(one.startswith(said) for one in notes_of(facts))
    steady = facts_of(Program("ddp", ranks=4, slow=2, late=2_000_000), tmp_path / "steady")
    assert not any(" later in step " in one for one in notes_of(steady))


def test_ranks_that_start_late_in_unknown_ways_straggle_in_no_step(tmp_path: Path) -> None:
    four = Program("ddp", ranks=4).save(tmp_path, ((0, 0.0),) * 4)
    assert not any(" later in step " in one for one in notes_of(Facts(load(four[:3]))))


def test_a_kernel_that_one_rank_alone_runs_is_noted_where_it_is_too_short_for_a_finding(tmp_path: Path) -> None:
    said = [one for one in notes_of(facts_of(Program("tp", ranks=4, own=20_000), tmp_path)) if "alone runs" in one]
    assert said == [
        "Rank 1 alone runs only_here in range step/layer.2, 20 µs of each step, and is then the last to start a "
        "collective."
    ]
    assert not [one for one in notes_of(facts_of(Program("tp", ranks=4), tmp_path / "clean")) if "alone runs" in one]


def test_a_kernel_after_which_the_next_stage_of_a_pipeline_waits_is_noted(tmp_path: Path) -> None:
    [said] = [one for one in notes_of(facts_of(Program("pp", own=100_000), tmp_path)) if "alone runs" in one]
    assert said.startswith("Rank 1 alone runs only_here in range step/layer.2, 100 µs of each step")


def test_a_rank_with_a_little_more_work_is_noted_where_its_saving_is_too_unsure_for_a_finding(tmp_path: Path) -> None:
    facts = facts_of(Program("ddp", late=450_000, kernel=300_000), tmp_path)
    assert "slow_rank" not in {one.proposal.kind for one in answer_of(facts).savers}
    [said] = [one for one in notes_of(facts) if "more work on its GPU" in one]
    assert said.startswith(
        "Rank 1 has 450 µs more work on its GPU than the mean of the others in each step, in range step/"
    )


def kernels(*rows: tuple[str, float, float, float, float]) -> pd.DataFrame:
    made = pd.DataFrame(rows, columns=["name", "count", "ns", "count_others", "ns_others"]).set_index("name")
    return made.assign(more=made["ns"] - made["ns_others"])


@pytest.mark.parametrize(
    ("rows", "own"),
    [
        ([("gemm", 4, 400, 4, 400), ("hold", 1, 1000, 0, 0)], {"hold": 1000}),
        ([("gemm", 0, 0, 4, 400), ("gemm_large", 4, 600, 0, 0)], {}),  # more rows, another kernel
        ([("gemm", 2, 200, 4, 400), ("gemm_large", 2, 300, 0, 0), ("cat", 1, 20, 0, 0)], {"cat": 20}),
        ([("loss", 0, 0, 4, 40), ("hold", 1, 1000, 0, 0)], {"hold": 1000}),  # the loss of the last stage is no hold
        ([("gemm", 0, 0, 1, 100), ("gemm_large", 4, 600, 0, 0)], {"gemm_large": 450}),
        ([("norm", 6, 60, 4, 40), ("gemm", 4, 420, 4, 400)], {"norm": 20}),
    ],
)
def test_a_kernel_in_place_of_one_of_the_others_is_no_own_work(rows: list[Any], own: dict[str, float]) -> None:
    found = own_of(kernels(*rows))
    assert found[found > 0].to_dict() == pytest.approx(own)


def test_own_work_counts_only_the_kernels_that_the_others_do_not_run(tmp_path: Path) -> None:
    """Kernels beside a collective that waits are slower, so those of the late rank are faster."""
    slow = slow_of(facts_of(Program("ddp", own=1_000_000, factor=0.96, kernel=400_000), tmp_path))
    assert slow is not None
    assert slow.time_ns == pytest.approx(1_000_000, rel=0.01)


def test_many_small_collectives_are_a_change_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEP, "ddp", ("all_reduce",) * 17)
    answer = answer_of(facts_of(Program("ddp", transfer=12_000), tmp_path))
    one = next(one for one in answer.replayed if one.proposal.about == "small collectives")
    assert "runs 17 collectives a step" in one.proposal.sentence


def test_small_collectives_that_a_layer_needs_at_once_cannot_be_merged(tmp_path: Path) -> None:
    answer = answer_of(facts_of(Program("sp", transfer=12_000, layers=8), tmp_path))
    assert not [one for one in answer.replayed if one.proposal.about == "small collectives"]


def test_collectives_beside_each_other_share_the_link() -> None:
    start, duration = np.array([0, 50, 200]), np.array([100.0, 100.0, 10.0])
    graph: Any = SimpleNamespace(
        o_start=start, o_duration=duration, o_end=start + duration, o_stream=np.array([0, 1, 0])
    )
    shared = _of_others(graph, np.ones(3, bool), np.zeros(2, np.int64))
    assert shared.tolist() == [50, 50, 0]
    assert not _of_others(graph, np.array([True, False, True]), np.zeros(2, np.int64)).any()


# Clocks and files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", [((0, 0.0), (-3_000_000, 2e-5)), ((5_000, -3e-5), (0, 4e-5))])
def test_nodes_whose_clocks_are_apart_and_run_apart_are_aligned(
    clocks: tuple[tuple[int, float], ...], tmp_path: Path
) -> None:
    program = Program("tp", late=300_000, steps=30)
    facts = facts_of(program, tmp_path, clocks)
    assert np.mean(recovered(facts, program.skews)) >= 0.95
    slow = slow_of(facts)
    assert slow is not None
    assert slow.about == "Rank 1"


def test_two_nodes_with_two_ranks_each_become_one_timeline(tmp_path: Path) -> None:
    program = Program("ddp", ranks=4, slow=3, late=400_000)
    facts = facts_of(program, tmp_path, ((0, 0.0), (40_000_000, 0.0)))
    assert facts.ranks["rank"].tolist() == ["rank 0", "rank 1", "rank 2", "rank 3"]
    waits = facts.rank_waits
    assert set(waits.loc[waits["waiting_ns"] > 1_000_000, "for"]) == {"rank 3"}
    assert set(waits["rank"]) >= {"rank 0", "rank 1", "rank 2"}
    steps = facts.once(_steps_of)
    late = steps[(steps["rank"] == "rank 3") & (steps["steady"] == "yes")]
    assert late["late_ns"].between(380_000, 420_000).all()
    assert (steps["hideable_ns"] <= steps["room_ns"]).all()


def _steps_of(facts: Facts) -> Any:
    from analysis.diagnosis.rank_steps import build_rank_steps

    return build_rank_steps(facts)


# Input that does not suffice --------------------------------------------------------------------------------------


def test_a_missing_rank_leaves_calls_undecided_and_is_named(tmp_path: Path) -> None:
    paths = Program("ddp", ranks=2).save(tmp_path, ((0, 0.0), (0, 0.0)))
    one = Facts(load(paths[:1]))
    assert any(gap.what == "the captures of 1 of 2 ranks" for gap in missing_of(one))
    four = Program("ddp", ranks=4).save(tmp_path / "four", ((0, 0.0),) * 4)
    facts = Facts(load(four[:3]))
    assert set(facts.collective_calls["verdict"]) == {"UNDECIDED"}
    assert any(gap.what == "the captures of 1 of 4 ranks" for gap in missing_of(facts))


def test_a_rank_on_another_gpu_is_named(tmp_path: Path) -> None:
    facts = facts_of(
        Program("ddp", ranks=4, models=("NVIDIA H100",) * 3 + ("NVIDIA A100",), factor=1.6, slow=3), tmp_path
    )
    said = "The ranks run on different GPUs (rank 3 on NVIDIA A100, the rest on NVIDIA H100): equal work takes unequal time."
    assert said in notes_of(facts)
    slow = slow_of(facts)
    assert slow is not None
    assert "The GPUs are different models: NVIDIA A100, NVIDIA H100." in slow.sentence


def test_without_a_payload_the_bytes_are_missing(tmp_path: Path) -> None:
    [export] = Program("ddp").exports()
    path = export.save(tmp_path / "x.sqlite", without={"NVTX_EVENTS": ("binaryData",)})
    facts = Facts(load([path]))
    assert facts.collective_calls["bytes"].isna().all()
    assert any(gap.reason == "no_payload" for gap in missing_of(facts))
    assert not any(gap.reason == "no_payload" for gap in missing_of(facts_of(Program("ddp"), tmp_path / "with")))


def test_bytes_that_no_payload_states_come_from_sampled_traffic(tmp_path: Path) -> None:
    run = Path(__file__).parents[2] / "reports" / "h200-sampled-ddp" / "captures"
    shutil.copytree(run, tmp_path / "captures", ignore=shutil.ignore_patterns("nccl_calls*"))
    told, sampled = (Facts(load([path])).collective_calls for path in (run, tmp_path / "captures"))
    assert set(told["bytes_from"]) == {"NCCL"}
    known = sampled[sampled["bytes_from"] == "samples"]
    assert len(known) == len(told) == 112  # 28 steps of four
    assert known["bytes"].mean() == pytest.approx(told["bytes"].mean(), rel=0.01)


# Real captures ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=list(REAL))
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    name, form = REAL[request.param]
    folder = tmp_path_factory.mktemp(name)
    for file, text in parts(KEY / request.param, f"{name}-h100"):
        if file.startswith(f"{form}/"):
            (folder / file.partition("/")[2]).write_text(text, encoding="utf-8")
    return Facts(load([folder]))


def test_skew_injected_into_a_real_capture_is_recovered(real: Facts) -> None:
    count, right = len(serial(real)), []
    rng = np.random.default_rng(56)
    for rank in (0, 1):
        amounts = 10 ** rng.uniform(4, 7, count)
        injected = inject(real.capture, rank, amounts.tolist(), offset_ns=250_000)
        facts = Facts(injected.capture)
        known = facts.collective_calls["skew_ns"].notna().to_numpy()
        assert known.sum() == count
        found = facts.collective_calls["skew_ns"].to_numpy(float)[known]
        truth = np.array(injected.skew_ns)
        right += list(np.abs(found - truth) <= np.maximum(5_000, 0.05 * truth))
    assert np.mean(right) >= 0.95


@pytest.mark.parametrize("rank", [0, 1])
def test_the_guilty_rank_and_kernel_of_a_real_capture_are_named(real: Facts, rank: int) -> None:
    step = answer_of(real).view.step.told_ns
    injected = inject(real.capture, rank, [0.5 * step] * len(serial(real)))
    slow = slow_of(Facts(injected.capture))
    assert slow is not None
    assert slow.about == f"Rank {rank}"
    assert "more work on its GPU" in slow.sentence


# The picture ------------------------------------------------------------------------------------------------------


def test_the_picture_has_the_ranks_as_lanes_their_lateness_and_the_matrix(tmp_path: Path) -> None:
    facts = facts_of(Program("ddp", ranks=4, slow=3, late=400_000), tmp_path)
    figure = plot_rank_steps(facts, "caption")
    assert figure is not None
    said = {one.get_text() for axes in figure.axes for one in axes.texts}
    assert any(text.startswith("4.0") and text.endswith(" ms") for text in said)  # ten steps of 400 µs
    assert [one.get_text() for one in figure.axes[1].get_yticklabels()] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert plot_rank_steps(facts_of(Program("ddp", ranks=1), tmp_path / "one"), "caption") is None

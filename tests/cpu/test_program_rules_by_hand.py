"""What sums say of a program: copies, calls of the host, ranges, kernels and costs of ranks, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.diagnosis import copies, findings, host, program, ran, rank_costs
from analysis.diagnosis.claims import Claim, cell
from analysis.diagnosis.each import reasons_of_kernels, tables_of_kernels
from analysis.diagnosis.spans import show_findings
from analysis.diagnosis.step_tables import answer_steps
from analysis.diagnosis.steps import build_gaps
from analysis.formats.report import Bound, Confidence, Disposition, KernelRow, Saving, Tier
from analysis.tables.attribution import UNATTRIBUTED
from analysis.tables.gaps import BUSY_FRAC_LIMIT
from analysis.tables.host import CUDA, SYSTEM
from analysis.tables.set_up import SET_UP
from tests.declared import STUDY_TABLES, TABLES, facts_of

_ = dict

# Copies -------------------------------------------------------------------------------------------------------------

COPY = _(device="GPU 0", kind="memcpy", direction="Host-to-Device", memory="Pinned -> Device", count=4, bytes=4 << 20, time_ns=1000.0,
         share_frac=0.5, rate_byte_per_s=2e9, link_frac=0.25, overlapped_frac=None)  # fmt: skip


def copied(**cells: Any) -> Claim:
    (found,) = copies.large_copies(pd.DataFrame([COPY | cells]))
    return found


@pytest.mark.parametrize(("cells", "said"), [
    ({}, "They reach 25% of the link's bandwidth: the pieces are large and the memory is pinned, so look at the link"),
    (_(bytes=(4 << 20) - 4), "They reach 25% of the link's bandwidth: larger pieces are faster."),
    (_(memory="Device", bytes=(4 << 20) - 4), "larger pieces and pinned memory are faster."),
    (_(memory="Device"), "pinned memory is faster."),
    (_(link_frac=0.5), "They reach 50% of the link's bandwidth: only fewer bytes make it faster."),
    (_(link_frac=0.5, memory="Pageable -> Device"), "fewer bytes make it faster still."),
    (_(direction="Device-to-Device", memory=None), "25% of half the DRAM bandwidth, as each byte is read and written: look at what else"),
    (_(direction="Device-to-Device", bytes=None), "larger pieces are faster."),
    (_(kind="memset", link_frac=0.6), "They write 2 GB/s, 60% of the DRAM bandwidth."),
    (_(kind="migration"), "They run at 2 GB/s."), (_(link_frac=None), "They run at 2 GB/s; the link's bandwidth is unknown."),
    (_(link_frac=None, direction="Device-to-Device"), "They run at 2 GB/s; the DRAM's bandwidth is unknown."),
    (_(link_frac=None, kind="memset"), "They run at 2 GB/s; the DRAM's bandwidth is unknown."),
    (_(link_frac=None, kind="migration"), "They run at 2 GB/s."),
    (_(bytes=4 * 65_536 - 4), "One moves 66 kB on average, so it spends most of its time on starting."),
    (_(bytes=4 * 9999), "One moves 9,999 bytes on average"), (_(bytes=4 * 10_000), "One moves 10 kB on average"),
    (_(overlapped_frac=0.49), "Kernels overlap 49% of that time: other kernels wait meanwhile."),
    (_(overlapped_frac=0.5), "Kernels overlap 50% of that time: it costs little extra time."),
    (_(overlapped_frac=0.0), "Kernels overlap none of that time: other kernels wait meanwhile."),
    (_(kind="migration", bytes=4), "A page moves when a kernel or the host touches it."),
    (_(bytes=None, rate_byte_per_s=None, memory=None), "The file does not tell how many bytes they move."),
    (_(bytes=None, rate_byte_per_s=None, memory=None, count=1), "The file does not tell how many bytes it moves."),
    (_(count=1), "1 copy host to device takes 0.001 µs."), (_(kind="memset", count=2), "2 sets take"),
    (_(kind="migration", count=2), "2 migrations take"), (_(direction=None), "4 copies take"),
])  # fmt: skip
def test_what_holds_copies_back(cells: dict[str, Any], said: str) -> None:
    assert said in copied(**cells | _(time_ns=1.0)).sentence


def test_what_the_link_would_take_is_said() -> None:
    assert copied(memory="Pageable -> Device").sentence.endswith(" At the link's bandwidth they would take 0.25 µs.")


def test_copies_that_are_not_small_are_not_called_small() -> None:
    assert "starting" not in copied(bytes=4 * 65_536).sentence
    assert "starting" not in copied(bytes=0).sentence


@pytest.mark.parametrize(("cells", "kind", "bound", "cites"), [
    ({}, "copy_bound", None, ["time_ns", "count", "link_frac"]),
    (_(memory="Pageable -> Device"), "pageable_copy", 750, ["time_ns", "count", "link_frac"]),
    (_(memory="Pageable -> Device", link_frac=0.49), "pageable_copy", 510, ["time_ns", "count", "link_frac"]),
    (_(memory="Pageable -> Device", link_frac=0.5), "pageable_copy", None, ["time_ns", "count", "link_frac"]),
    (_(memory="Pageable -> Device", link_frac=None), "pageable_copy", None, ["time_ns", "count", "rate_byte_per_s"]),
    (_(memory="Pageable -> Device", kind="migration"), "migration", None, ["time_ns", "count", "rate_byte_per_s"]),
    (_(kind="memset"), "redundant_copy", None, ["time_ns", "count", "rate_byte_per_s"]),
    (_(bytes=4), "small_copies", None, ["time_ns", "count", "link_frac"]),
    (_(overlapped_frac=0.1, rate_byte_per_s=None), "copy_bound", None, ["time_ns", "count", "overlapped_frac"]),
])  # fmt: skip
def test_the_cause_of_copies(cells: dict[str, Any], kind: str, bound: int | None, cites: list[str]) -> None:
    found = copied(**cells)
    assert (found.kind, found.bound_ns, [one.column for one in found.cells], found.weight_ns) == (
        kind,
        bound,
        cites,
        1000,
    )


@pytest.mark.parametrize(("cells", "title"), [
    ({}, "Copies host to device, 50% of the GPU operations' time: at 25% of the link's rate"),
    (_(direction="Device-to-Device"), "Copies device to device, 50% of the GPU operations' time: at 25% of half the DRAM bandwidth"),
    (_(kind="memset", direction=None), "Sets of memory, 50% of the GPU operations' time: at 25% of the DRAM bandwidth"),
    (_(kind="migration"), "Migrations of unified memory host to device, 50% of the GPU operations' time: pages move on demand"),
    (_(link_frac=None), "Copies host to device, 50% of the GPU operations' time: at 2 GB/s"),
])  # fmt: skip
def test_the_title_of_copies(cells: dict[str, Any], title: str) -> None:
    assert copied(**cells).title == title


def test_copies_with_a_tenth_of_the_time_are_named_two_at_most() -> None:
    rows = pd.DataFrame(
        [
            COPY | _(time_ns=at, share_frac=part, device=f"GPU {at}")
            for at, part in ((1, 0.1), (3, 0.2), (2, 0.3), (9, 0.099))
        ]
    )
    found = copies.large_copies(rows)
    assert [one.weight_ns for one in found] == [3, 2]
    assert found[0].title.startswith("Copies host to device on GPU 3, 20%")
    assert len(copies.large_copies(rows, most=9)) == 3
    assert "on GPU" not in copied().title


# Calls of the host --------------------------------------------------------------------------------------------------


def calls(*rows: dict[str, Any]) -> pd.DataFrame:
    usual = _(
        source=CUDA,
        call="cudaDeviceSynchronize",
        calls=10,
        host_time_ns=1000.0,
        share_frac=0.5,
        longest_ns=100.0,
        median_ns=100.0,
    )
    return pd.DataFrame([usual | row for row in rows])


@pytest.mark.parametrize(("row", "title", "sentence", "kind", "weight"), [
    ({}, "cudaDeviceSynchronize: the host waits there for the GPU to finish",
     "1 µs in 10 calls, 50% of all time in CUDA calls. A call takes 0.1 µs on average, the longest 0.1 µs.", "sync", 1000),
    (_(longest_ns=501.0), "cudaDeviceSynchronize: the host waits there for the GPU to finish",
     "1 µs in 10 calls, 50% of all time in CUDA calls. One call takes 0.501 µs of that, and the others are short.", "sync", 1000),
    (_(calls=None), "cudaDeviceSynchronize: the host waits there for the GPU to finish",
     "1 µs, 50% of all time in CUDA calls.", "sync", 1000),
    (_(source=SYSTEM, call="poll", calls=1), "Nothing here limits the program: threads sleep in poll",
     "1 µs in 1 call, 50% of all time in calls of the operating system, summed over threads. "
     "Threads sleep there until another thread or a device wakes them; idle helper threads always do. "
     "What the program does meanwhile is not in the file.", "nothing", 0),
    (_(call="cudaMemcpyAsync"), "cudaMemcpyAsync: a copy from pageable memory may make even this call wait",
     "1 µs in 10 calls, 50% of all time in CUDA calls. A call takes 0.1 µs on average, the longest 0.1 µs.", "pageable_copy", 1000),
    (_(source="NVTX range", call="poll", longest_ns=500.0), "poll: 10 calls of 0.1 µs on average",
     "1 µs in 10 calls, 50% of all time in ranges. A call takes 0.1 µs on average, the longest 0.5 µs.", "host_work", 1000),
    (_(source="NVTX range", longest_ns=501.0), "cudaDeviceSynchronize: one of 10 calls is 50% of its time",
     "1 µs in 10 calls, 50% of all time in ranges. One call takes 0.501 µs of that, and the others are short.", "host_work", 1000),
    # three allocations, of which the first sets CUDA up
    (_(call="cudaMalloc", calls=3, longest_ns=980.0), "cudaMalloc: the first call sets CUDA up, once",
     "1 µs in 3 calls, 50% of all time in CUDA calls. One call takes 0.98 µs of that, and the others are short.", "start_up", 0),
    (_(call="cudaMalloc", calls=4, longest_ns=980.0), "cudaMalloc: the first call sets CUDA up, once",
     "1 µs in 4 calls, 50% of all time in CUDA calls. One call takes 0.98 µs of that, and the others are short.", "start_up", 0),
    (_(call="cudaMemcpyToSymbol", calls=5, longest_ns=990.0), "cudaMemcpyToSymbol: the first call sets CUDA up, once",
     "1 µs in 5 calls, 50% of all time in CUDA calls. One call takes 0.99 µs of that, and the others are short.", "start_up", 0),
    (_(call="cudaMemcpy", calls=1_000), "cudaMemcpy: many short copies, so starting them takes the time",
     "1 µs in 1,000 calls, 50% of all time in CUDA calls. A call takes 0.001 µs on average, the longest 0.1 µs.", "small_copies", 1000),
    (_(call="cudaMalloc", calls=4, longest_ns=890.0, share_frac=0.5), "cudaMalloc: allocating and freeing wait for the GPU",
     "1 µs in 4 calls, 50% of all time in CUDA calls. One call takes 0.89 µs of that, and the others are short.", "allocation", 110),
    (_(call="cudaMalloc", calls=3, longest_ns=500.0), "cudaMalloc: allocating and freeing wait for the GPU",
     "1 µs in 3 calls, 50% of all time in CUDA calls. A call takes 0.333 µs on average, the longest 0.5 µs.", "allocation", 1000),
])  # fmt: skip
def test_what_time_in_a_call_means(row: dict[str, Any], title: str, sentence: str, kind: str, weight: float) -> None:
    (found,) = host.host_waits(calls(row))
    assert (found.title, found.sentence, found.kind, found.weight_ns) == (title, sentence, kind, weight)
    assert {one.column for one in found.cells} == {"host_time_ns", "calls", "longest_ns"} - (
        {"calls"} if row.get("calls", 1) is None else set()
    )


@pytest.mark.parametrize(("calls_", "longest", "said"), [
    (1, 1000.0, ""), (2, 1000.0, " One call takes 1 µs of that, and the others are short."),
    (2, 500.0, " A call takes 0.5 µs on average, the longest 0.5 µs."),
])  # fmt: skip
def test_how_time_is_spread_over_calls(calls_: int, longest: float, said: str) -> None:
    assert host._spread(_(calls=calls_, longest_ns=longest, host_time_ns=1000.0))[0] == said


def test_calls_that_say_nothing_are_left_out() -> None:
    assert host.host_waits(calls(_(share_frac=0.0099))) == []
    sleeping = calls({}, _(source=SYSTEM, call="poll"))
    assert [one.kind for one in host.host_waits(sleeping)] == ["sync"]  # idle helper threads always sleep
    assert len(host.host_waits(calls(_(share_frac=0.01)))) == 1
    assert host.host_waits(calls(_(call="unknown", calls=1))) == []
    assert host.host_waits(calls(_(call="unknown", longest_ns=None))) == []
    assert host.host_waits(calls(_(call="unknown", host_time_ns=0.0))) == []
    many = calls(*(_(call=f"cudaStreamSynchronize{at}") for at in range(9)))
    assert [len(host.host_waits(many, most=most)) for most in (1, 2)] == [2, 4]
    once = calls(_(call="cuInit"), {})
    assert [one.kind for one in host.host_waits(once)] == ["sync", "start_up"]  # what happens once comes last


def test_launches_are_compared_with_kernels_only_where_their_times_are_known() -> None:
    """In a trace of calls alone, no kernel took any time: 1 µs of launches is more than nothing."""
    told = "1 µs in 10 calls, 50% of all time in CUDA calls. A call takes 0.1 µs on average, the longest 0.1 µs."
    (known,) = host.host_waits(calls(_(call="cudaLaunchKernel")))
    assert (known.kind, known.title) == ("launch_bound", "cudaLaunchKernel: launching costs more than computing")
    (alone,) = host.host_waits(calls(_(call="cudaLaunchKernel")), computed=False)
    assert (alone.kind, alone.title) == ("unknown", "cudaLaunchKernel: the times of the kernels were not recorded")
    assert known.sentence == alone.sentence == told
    (wait,) = host.host_waits(calls({}), computed=False)
    assert wait.kind == "sync"


@pytest.mark.parametrize(
    ("kind", "computing", "copying", "explained"),
    [
        ("launch_bound", 0.0, 0.0, True), ("launch_bound", 0.0, 9.0, True), ("launch_bound", 9.0, 0.0, False),
        ("launch_bound", 9.0, 1.0, True), ("sync", 0.0, 4.0, False), ("sync", 0.0, 5.0, True), ("storage", 99.0, 0.0, False),
    ],
)  # fmt: skip
def test_launches_without_times_of_kernels_say_nothing(
    kind: str, computing: float, copying: float, *, explained: bool
) -> None:
    times = {"kernels": pd.DataFrame({"nsys_time_ns": [computing]})}
    facts = facts_of(Capture(), {tables_of_kernels: times}, copies=pd.DataFrame({"time_ns": [copying]}))
    call = Claim(kind=kind, title="", sentence="", cells=(cell("host", {"source": CUDA}, "host_time_ns", 10),))
    assert findings._explained(call, facts) is explained


def test_calls_that_allocate_again_and_again_are_one_finding() -> None:
    free = _(call="cudaFree", calls=6, host_time_ns=2600.0, longest_ns=2500.0)
    rows = calls(_(call="cudaMalloc", calls=4, host_time_ns=1000.0, longest_ns=300.0), free, {})
    loop, other = host.host_waits(rows)
    assert loop.title == "cudaMalloc and cudaFree: allocating and freeing wait for the GPU"
    assert loop.sentence == (
        "cudaMalloc takes 1 µs in 4 calls of 0.25 µs on average; cudaFree takes 0.1 µs in 5 calls of 0.02 µs on average without "
        "the first one, which takes 2.5 µs to set CUDA up, once: 1.1 µs in all. Allocating and freeing wait for the GPU."
    )
    assert (loop.weight_ns, loop.kind, other.kind, len(loop.cells)) == (1100, "allocation", "sync", 6)
    rows["share_frac"] = 0.01
    assert host.host_waits(rows)[0].title == loop.title
    for few in (_(calls=3), _(share_frac=0.0099), _(calls=None), _(longest_ns=None), _(call="cudaHostAlloc")):
        assert not any(
            " and cuda" in one.title for one in host.host_waits(calls(_(call="cudaMalloc", calls=4), free | few))
        )


@pytest.mark.parametrize(("row", "once"), [
    (_(calls=1, longest_ns=5.0, host_time_ns=5.0), 5), (_(calls=5, longest_ns=81.0, host_time_ns=97.0), 81),
    (_(calls=5, longest_ns=80.0, host_time_ns=96.0), 0), (_(calls=2, longest_ns=20.0, host_time_ns=21.0), 0), (_(calls=2, longest_ns=21.0, host_time_ns=22.0), 21),
])  # fmt: skip
def test_a_call_twenty_times_as_long_as_the_others_happens_once(row: dict[str, Any], once: float) -> None:
    assert host._once(row) == once


def ranges(*lengths: int, path: str = "a") -> pd.DataFrame:
    starts = [1_000_000 * at for at in range(len(lengths))]
    return pd.DataFrame(_(range_id=range(len(lengths)), parent_id=pd.array([pd.NA] * len(lengths), dtype="Int64"), path=path, start_ns=starts,
                          end_ns=[start + length for start, length in zip(starts, lengths, strict=True)]))  # fmt: skip


@pytest.mark.parametrize(("lengths", "headline", "said"), [
    ((9, 9), "", ""),
    ((3100, 1000, 1000), "its first call takes 3 times the median", "The first call takes 3.1 µs, the median call 1 µs: it pays for a start."),
    ((1000, 1000, 3100), "its longest call takes 3 times the median",
     "The longest call takes 3.1 µs, the median call 1 µs: something else ran meanwhile, or its input was larger."),
    ((1000, 1000, 3000), "3 calls of 1 µs, none much longer",
     "All calls take about as long (median 1 µs, longest 3 µs): steady work."),
    ((0, 0, 5), "3 calls of 0 µs, none much longer", "All calls take about as long (median 0 µs, longest 0.005 µs): steady work."),
])  # fmt: skip
def test_how_the_calls_of_a_range_differ(lengths: tuple[int, ...], headline: str, said: str) -> None:
    assert host._of_calls(pd.Series(lengths)) == (headline, said)


def test_the_rate_of_a_range_whose_work_is_declared() -> None:
    ops = pd.DataFrame([_(range="a/0", flops=100.0, minimum_bytes=20.0), _(range="a/1", flops=300.0, minimum_bytes=np.nan),
                        _(range="b", flops=1e9, minimum_bytes=1e9)])  # fmt: skip
    assert host._rates("a/*", 100.0, 4, ops) == (
        "runs at 8 GFLOP/s and 0.4 GB/s",
        "With the FLOPs and bytes of ops.csv, it runs at 8 GFLOP/s and 0.4 GB/s.",
    )
    assert host._rates("a/*", 100.0, 4, ops.assign(minimum_bytes=0.0))[0] == "runs at 8 GFLOP/s"
    for path, time, table in (
        ("a/*", 0.0, ops),
        ("c", 1.0, ops),
        ("a/*", 1.0, None),
        ("b", 1.0, ops.assign(flops=0.0, minimum_bytes=0.0)),
    ):
        assert host._rates(path, time, 1, table) == ("", "")
    assert host._rates("b", 1.0, 1, ops.assign(flops=1.0, minimum_bytes=0.0))[0] == "runs at 1 GFLOP/s"
    assert host._rates("b", 1.0, 1, ops.assign(flops=0.0, minimum_bytes=1.0))[0] == "runs at 1 GB/s"
    assert host._rates("b", 1e9, 1, ops.assign(flops=0.0)) == (
        "runs at 1 GB/s",
        "With the FLOPs and bytes of ops.csv, it runs at 1 GB/s.",
    )


def test_ranges_with_most_time_of_their_own() -> None:
    rows = [_(range=name, calls=3, self_time_ns=time, share_frac=part) for name, time, part in
            (("x", 100.0, None), ("a", 3000.0, 0.01), ("b", 10.0, 0.0099), ("c", 9.0, 0.9))]  # fmt: skip
    given = pd.concat(
        [ranges(1000, 1000, 1000), ranges(9, 9, 9, path="b"), ranges(9, 9, 9, path="c")], ignore_index=True
    )
    found = host.cpu_ranges(pd.DataFrame(rows), given, None, recorded="More.")
    assert [one.title for one in found] == [
        "x: the capture does not show what happens in it",
        "a: 3 calls of 1 µs, none much longer",
    ]
    assert found[0].sentence == "3 calls take 0.1 µs, 0% of the CPU time in ranges. More."
    assert found[1].sentence.startswith("3 calls take 3 µs, 1.0% of the CPU time in ranges. All calls")
    assert [one.column for one in found[0].cells] == ["self_time_ns", "calls"]
    assert (len(found[1].cells), found[1].weight_ns) == (3, 3000)
    assert (
        host.cpu_ranges(pd.DataFrame(rows).head(1), ranges(), None)[0].sentence
        == "3 calls take 0.1 µs, 0% of the CPU time in ranges."
    )


# Findings -----------------------------------------------------------------------------------------------------------


def verdict(**cells: Any) -> dict[str, Any]:
    usual = _(kernel="k", range="r", rank=1, defect="no_tile", least_to_win_ns=4, time_to_win_ns=10, sure_frac=0.8, gain_bound_frac=0.5,
              evidence=pd.NA, reason="It reads again.", do="Read once.", doubt="", recapture=pd.NA)  # fmt: skip
    return usual | cells


def test_the_first_cause_of_each_kernel_is_a_finding() -> None:
    rows = [verdict(), verdict(kernel="l", least_to_win_ns=pd.NA, time_to_win_ns=20, sure_frac=0.5, evidence="waves = 2"), verdict(rank=2), verdict(sure_frac=0.49),
            verdict(time_to_win_ns=0), verdict(time_to_win_ns=pd.NA)]  # fmt: skip
    first, second, last = findings._causes(
        pd.DataFrame([*rows, verdict(kernel="m", least_to_win_ns=0, time_to_win_ns=1)])
    )
    assert (last.saves_ns, second.saves_ns) == (Saving(0.0, 1.0), Saving(4.0, 10.0))
    assert (first.title, first.sentence, first.saves_ns) == (
        "r: l: operands read again for each output",
        "It reads again. It rests on waves = 2 (grid over what the GPU holds at once).",
        Saving(None, 20.0),
    )
    assert (first.confidence, second.confidence, second.sentence) == (
        Confidence.LIKELY,
        Confidence.SURE,
        "It reads again.",
    )
    assert [(one.column, one.value) for one in second.cells] == [
        ("gain_bound_frac", 0.5),
        ("sure_frac", 0.8),
        ("time_to_win_ns", 10),
    ]
    assert first.cells[0].row == {"kernel": "l", "range": "r", "rank": 1}
    assert findings._causes(pd.DataFrame(rows).drop(columns="defect")) == []


def test_a_likely_cause_is_a_finding_behind_one_that_is_not() -> None:
    less = verdict(sure_frac=0.449, time_to_win_ns=30, reason="Lanes wait.")
    (found,) = findings._causes(
        pd.DataFrame([less, verdict(rank=2), verdict(rank=3, defect="divergence"), verdict(rank=pd.NA)])
    )
    assert (found.kind, found.sentence) == ("no_tile", "It reads again. Less sure: Lanes wait.")
    assert found.cells[0].row == {"kernel": "k", "range": "r", "rank": 2}
    assert findings._causes(pd.DataFrame([less, less | {"rank": 2}])) == []


def claim(table: str = "kernels", weight: float = 0.0, **row: Any) -> Claim:
    return Claim(kind="unknown", title=str(row), sentence="", weight_ns=weight, cells=(cell(table, row, "time_ns", 1),))


OPS = pd.DataFrame([
    _(name="void k<1>(int)", kind="kernel", memory="", start_ns=start, duration_ns=length)
    for start, length in ((100_000, 9000), (200_000, 1000), (300_000, 7000), (400_000, 8000))
] + [_(name="c", kind="memcpy", memory="Pinned", start_ns=2000, duration_ns=100)])  # fmt: skip


@pytest.mark.parametrize(("row", "span", "rows"), [
    # of 1,000, 7,000, 8,000 and 9,000 ns the second: as much on either side
    (_(kernel="k"), (293_000, 314_000), [0, 1, 2, 3]),
    (_(kernel="l"), None, None),
    (_(kind="memcpy", memory="Pinned"), (0, 7100), [4]),  # 5 µs on either side, but nothing before the capture
    (_(kind="memcpy", memory="Device"), None, None),
    (_(kind="kernel", memory=""), (293_000, 314_000), [0, 1, 2, 3]),
])  # fmt: skip
def test_a_finding_is_shown_at_its_median_operation(
    row: dict[str, Any], span: tuple[int, int] | None, rows: list[int] | None
) -> None:
    facts = facts_of(gpu_ops=OPS.assign(name=OPS["name"].replace("void k<1>(int)", "k")), ranges=ranges())
    found = findings._placed(claim(**row), facts)
    assert found.span == span
    assert (None if found.ops is None else found.ops.tolist()) == rows


def test_an_operation_before_the_capture_begins_is_shown_from_its_start() -> None:
    facts = facts_of(gpu_ops=OPS.tail(1).assign(start_ns=-10_000), ranges=ranges())
    assert findings._placed(claim(kind="memcpy", memory="Pinned"), facts).span == (-10_000, -4900)


def test_a_range_is_shown_at_its_median_length() -> None:
    facts = facts_of(gpu_ops=OPS.head(0), ranges=ranges(30_000, 10_000, 20_000), folded={"a": "a"})
    found = findings._placed(claim("cpu_times", range="a"), facts)
    assert (found.span, found.ops) == ((1_980_000, 2_040_000), None)


def test_no_source_hides_the_others() -> None:
    found = [claim("host", source=name, call=str(at)) for at, name in enumerate("aaabbc")]
    assert [one.cells[0].row["call"] for one in findings._of_each(found)] == ["0", "1", "3", "4", "5"]
    assert [one.cells[0].row["call"] for one in findings._of_each(found, 1)] == ["0", "3", "5"]


def sums(monkeypatch: pytest.MonkeyPatch, *, won: int = 0, hot: tuple[float, ...] = (), copied: tuple[float, ...] = (), waits: tuple[Claim, ...] = (),
         cpu: tuple[float, ...] = ()) -> tuple[list[Claim], dict[str, Any]]:  # fmt: skip
    """Return the findings of a capture without a step, and what hot_kernels was asked."""
    asked: dict[str, Any] = {}
    diagnosis = pd.DataFrame([verdict(kernel=f"won {at}", time_to_win_ns=100 - at) for at in range(won)])

    def kernels(tables: Any, clock: str, **more: Any) -> list[Claim]:
        asked.update(more, clock=clock)
        return [claim(weight=weight, kernel=f"hot {weight:g}") for weight in hot]

    monkeypatch.setattr(findings, "hot_kernels", kernels)
    monkeypatch.setattr(
        findings, "large_copies", lambda table: [claim("copies", weight, kind="memcpy") for weight in copied]
    )
    monkeypatch.setattr(findings, "host_waits", lambda table, most=3, **more: list(waits)[: 2 * most])
    monkeypatch.setattr(
        findings, "cpu_ranges", lambda *tables, recorded: [claim("cpu_times", weight, range="a") for weight in cpu]
    )
    facts = facts_of(
        Capture(clock="torch"), {tables_of_kernels: {}, reasons_of_kernels: diagnosis}, gpu_ops=OPS.head(0), ranges=ranges(), folded={}, copies=None,
        cpu_times=None, host=None, sm_count=7,
    )  # fmt: skip
    return findings._of_sums(facts), asked


def weights(found: tuple[list[Claim], Any]) -> list[float]:
    return [one.weight_ns for one in found[0]]


def test_causes_come_first_then_what_takes_most_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = sums(monkeypatch, won=2, hot=(5.0, 9.0), copied=(7.0, 8.0))
    assert [one.weight_ns for one in found] == [0, 0, 9, 8, 7]  # five in all
    assert (asked["most"], asked["skip"], asked["clock"], asked["sm_count"]) == (
        1,
        {"won 0", "won 1"},
        "torch.profiler",
        7,
    )
    assert sums(monkeypatch, won=4)[1]["most"] == 1
    assert [len(sums(monkeypatch, won=won)[0]) for won in (4, 6)] == [4, 5]
    found, asked = sums(monkeypatch, won=6, hot=(5.0,))
    assert ([one.weight_ns for one in found], len(asked["skip"])) == ([0, 0, 0, 0, 5], 6)
    assert sums(monkeypatch)[1]["most"] == 3


def test_the_host_speaks_where_kernels_have_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = (claim("host", weight, source=CUDA) for weight in (0.9, 1.0))
    assert weights(sums(monkeypatch, hot=(60.0, 40.0), waits=(long,))) == [60, 40, 1]
    assert weights(sums(monkeypatch, hot=(60.0, 40.0), waits=(short,))) == [60, 40]
    assert weights(
        sums(monkeypatch, hot=(60.0,), waits=(claim("host", 9.0, source=SYSTEM), claim("host", 8.0, source=CUDA)))
    ) == [60, 8]
    assert weights(sums(monkeypatch, hot=(60.0,), waits=(long, long))) == [60, 1]
    assert weights(sums(monkeypatch, won=1, waits=(long,))) == [0]
    asleep = claim("host", 9.0, source=SYSTEM)
    assert weights(sums(monkeypatch, hot=(60.0,), waits=(asleep, asleep, long))) == [60]
    assert weights(sums(monkeypatch, waits=(long, long, long), cpu=(3.0,))) == [3, 1, 1]
    assert weights(sums(monkeypatch, hot=(2.0,), cpu=(3.0,))) == [2]


def test_findings_of_steps_hide_those_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings.step_findings, "claims", lambda answers: answers)
    monkeypatch.setattr(findings, "lowered_clocks", lambda facts: [claim(clock="low")])
    monkeypatch.setattr(findings, "_of_sums", lambda facts: [claim(sums="all")])
    for steps, title in (([claim(step="a")], "step"), ([], "sums")):
        found = findings.findings_of(facts_of(None, {answer_steps: steps}, is_program=True))
        assert [next(iter(one.cells[0].row)) for one in found] == [title, "clock"]


def test_a_capture_of_no_program_has_no_finding() -> None:
    assert findings.findings_of(facts_of(is_program=False)) == []


# The tree of the program --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("roof", "side", "mean", "step", "bound"), [
    (0.6, "compute", 1.0, None, "compute"), (0.6, "memory", 1.0, None, "memory"), (0.59, "compute", 9999.0, None, "launch"),
    (0.59, "compute", 10_000.0, None, "latency"), (None, "", 10_000.0, None, "unknown"), (None, "", 9999.0, True, "launch"),
    (None, "", 9999.0, False, "unknown"), (0.1, "", 9999.0, False, "latency"),
])  # fmt: skip
def test_what_binds_a_kernel(roof: float | None, side: str, mean: float, step: bool | None, bound: str) -> None:
    given = None if step is None else program._Step(0.0, "", "", step)
    assert program._bound(roof, side, mean, given) == bound


GAP = _(step="a", bare_wall_ns=np.nan, wall_ns=100.0, busy_ns=60.0, verdict="")


@pytest.mark.parametrize(("gap", "filled", "idle", "source", "bound", "launches"), [
    ({}, {}, 40, "attached", "", True), (_(bare_wall_ns=90.0), {}, 30, "bare", "", True), (_(busy_ns=120.0), {}, 0, "attached", "", True),
    (_(busy_ns=np.nan), {}, 0, "attached", "", True), (_(wall_ns=np.nan), {}, 0, "attached", "", True),
    (_(bare_wall_ns=90.0), {"a": BUSY_FRAC_LIMIT}, 0, "bare", "", True), (_(bare_wall_ns=90.0), {"a": BUSY_FRAC_LIMIT - 0.01}, 30, "bare", "", True),
    ({}, {"a": 1.0}, 40, "attached", "", True), (_(verdict=SET_UP), {}, 0, "attached", "", True),
    (_(verdict="launch_bound"), {}, 40, "attached", "launch", True), (_(verdict="sync"), {}, 40, "attached", "host", False),
    (_(verdict="memory_roof"), {}, 40, "attached", "memory", False),
])  # fmt: skip
def test_what_is_known_of_a_step(
    gap: dict[str, Any], filled: dict[str, float], idle: float, source: str, bound: str, launches: bool
) -> None:
    found = program._steps(pd.DataFrame([GAP | gap]), pd.DataFrame({"range": ["a"]}), filled)
    assert found == {"a": program._Step(idle, source, bound, launches)}


def test_the_leaves_of_kernels_and_copies() -> None:
    kernels = pd.DataFrame([_(kernel="k", range="a", nsys_time_ns=6.0, ncu_time_ns=1.0, launches=2),
                            _(kernel="k", range="a", nsys_time_ns=4.0, ncu_time_ns=1.0, launches=1),
                            _(kernel="l", range=None, nsys_time_ns=None, ncu_time_ns=7.0, launches=0)])  # fmt: skip
    roofline = pd.DataFrame(
        [
            _(kernel="k", range="a", roof_frac=frac, bound=side)
            for frac, side in ((0.7, "compute"), (0.2, "memory"), (None, "x"))
        ]
    )
    counters = pd.DataFrame([_(kernel="k", range="a", launches=3, dram_bytes=50.0)])
    one, other = program._kernel_leaves(kernels, roofline, counters, {})
    assert (one.time_ns, one.launches, one.roof, one.bound, one.bytes) == (10, 3, 0.7, "compute", 50)
    assert (other.range, other.time_ns, other.launches, other.roof, other.bound, other.bytes) == (
        "",
        0,
        0,
        None,
        "launch",
        None,
    )
    for unknown in (counters.assign(launches=2), counters.assign(dram_bytes=np.nan), counters.head(0)):
        assert next(program._kernel_leaves(kernels, roofline, unknown, {})).bytes is None
    one, _other = program._kernel_leaves(kernels.assign(nsys_time_ns=np.nan), roofline.head(0), counters, {})
    assert (one.time_ns, one.bound) == (2, "launch")
    long = kernels.assign(nsys_time_ns=30_000.0)
    assert (
        next(program._kernel_leaves(long, roofline.head(0), counters, {})).bound == "unknown"
    )  # 60 µs in three launches
    once = kernels.head(1).assign(nsys_time_ns=12_000.0, launches=1)
    assert next(program._kernel_leaves(once, roofline.head(0), counters, {})).bound == "unknown"
    copy = next(
        program._copy_leaves(
            pd.DataFrame([_(kind="memcpy", direction="Host-to-Device", range=None, time_ns=5, count=2)])
        )
    )
    assert (copy.name, copy.range, copy.time_ns, copy.launches, copy.bound, copy.bytes) == (
        "memcpy Host-to-Device",
        "",
        5,
        2,
        "memory",
        None,
    )


def test_the_rows_of_a_tree() -> None:
    root = program._Node("", "program")
    for leaf in (
        program._Node("b", "kernel", "k", 10.0, 1, bytes=8.0, roof=0.5, bound="memory"), program._Node("a/x", "kernel", "l", 40.0, 1, bytes=None, bound="launch"),
        program._Node("b", "kernel", "m", 30.0, 1, bytes=8.0, roof=1.2, bound="memory"), program._Node("c", "kernel", "k", 20.0, 1, roof=0.0, bound="x"),
    ):  # fmt: skip
        inside = program._around(root, leaf.range)
        for node in inside:
            node.add(leaf)
        inside[-1].leaves.append(leaf)
    root.idle_ns = 7.0
    rows = list(program._rows(root, {"b": 0}, root.time_ns))
    assert [(row["range"], row["kernel"] if row["kernel"] is not pd.NA else "") for row in rows] == [
        ("", ""), ("b", ""), ("b", "m"), ("b", "k"), ("a", ""), ("a/x", ""), ("a/x", "l"), ("c", ""), ("c", "k")]  # fmt: skip
    found = {(row["range"], row["kernel"] if row["kernel"] is not pd.NA else ""): row for row in rows}
    assert (
        found["", ""]["share_frac"],
        found["", ""]["idle_ns"],
        found["", ""]["roof_frac"],
        found["", ""]["bound"],
    ) == (1, 7, None, "memory")
    assert (found["b", ""]["roof_frac"], found["b", ""]["tier"], found["b", ""]["dram_bytes"]) == (
        pytest.approx((36 + 5) / 40),
        "counters",
        16,
    )
    assert (found["b", "k"]["gain_ns"], found["b", "m"]["gain_ns"], found["b", "k"]["share_frac"]) == (5, 0, 0.1)
    assert (found["a/x", "l"]["roof_frac"], found["a/x", "l"]["tier"], found["a", ""]["tier"]) == (
        None,
        "timing",
        "timing",
    )
    assert pd.isna(found["b", ""]["idle_ns"])
    assert pd.isna(found["a/x", "l"]["gain_ns"])
    assert found["c", ""]["roof_frac"] == 0
    empty = next(program._rows(program._Node("", "program"), {}, 1.0))
    assert (empty["bound"], empty["roof_frac"]) == ("unknown", None)


def test_copies_alone_make_a_program() -> None:
    table = lambda name: pd.DataFrame(columns=(TABLES | STUDY_TABLES)[name].column_names)  # noqa: E731
    row = _(kind="memcpy", direction="Host-to-Device", range="a", time_ns=40, count=2)
    copies = pd.DataFrame([row, row | _(direction="Device-to-Host", time_ns=0)])
    given = {name: table(name) for name in ("kernels", "roofline", "counters", "traffic", "layers")}
    given["traffic"] = pd.DataFrame([_(range="a", minimum_bytes=5)])
    built = program.build_program(facts_of(None, {build_gaps: table("gaps")}, copies=copies, filled={}, **given))
    assert built["time_ns"].tolist() == [40, 40, 40, 0]
    assert built["kind"].tolist() == ["program", "range", "copy", "copy"]
    assert built["minimum_bytes"].fillna(-1).tolist() == [-1, 5, -1, -1]


# What ran -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("begin", "end", "wall"), [(200, 350, 300), (50, 500, 450)])
def test_the_wall_time_is_from_the_first_to_the_last_event(begin: int, end: int, wall: float) -> None:
    ops = pd.DataFrame(_(start_ns=[100, 300], duration_ns=[50, 100]))
    event = pd.DataFrame(_(start_ns=[begin], end_ns=[end]))
    for given in ({"ranges": event}, {"ranges": event.head(0), "calls": event}):
        assert ran._wall_ns(facts_of(Capture(gpu_ops=ops, **given), has_timeline=True)) == wall
    capture = Capture(gpu_ops=ops, ranges=event)
    assert ran._wall_ns(facts_of(capture, has_timeline=False)) is None


def test_a_kernel_is_nearest_to_the_roof_of_its_best_launch() -> None:
    rows = [_(kernel="k", roof_frac=0.2, bound="memory", level="dram"), _(kernel="k", roof_frac=0.7, bound="compute", level="dram"),
            _(kernel="l", roof_frac=0.1, bound="memory", level="l2"), _(kernel="m", roof_frac=None, bound="memory", level="l2")]  # fmt: skip
    assert ran._bounds(pd.DataFrame(rows)) == {"k": Bound("compute", 0.7), "l": Bound("l2", 0.1)}
    assert ran._bounds(pd.DataFrame(rows).head(0)) == {}


def test_kernels_of_a_capture_without_a_step() -> None:
    kernels = pd.DataFrame([_(kernel="k", nsys_time_ns=None, ncu_time_ns=30.0, launches=2), _(kernel="k", nsys_time_ns=20.0, ncu_time_ns=9.0, launches=1),
                            _(kernel="l", nsys_time_ns=0.25, ncu_time_ns=None, launches=1), _(kernel="m", nsys_time_ns=0.24, ncu_time_ns=None, launches=1)])  # fmt: skip
    shown = [SimpleNamespace(id="first", kind="fuse", cells=[cell("kernels", {"kernel": "k"}, "launches", 1)]),
             SimpleNamespace(id="second", kind="no_tile", cells=[cell("kernels", {"kernel": "k"}, "launches", 1), cell("kernels", {"kernel": "l"}, "launches", 1),
                                                                cell("host", {"call": "x"}, "calls", 1)])]  # fmt: skip
    facts = facts_of(
        None, {show_findings: shown, answer_steps: ()}, kernels=kernels, roofline=pd.DataFrame(), sampled=None
    )
    found = ran._of_capture(facts, {"k": (Bound("dram", 0.5), Tier.COUNTERS)})
    assert [(one.name, one.ns, one.launches, one.finding, one.disposition) for one in found] == [
        ("k", 50, 3, "first", Disposition.FUSE), ("l", 0.25, 1, "second", Disposition.FASTER)] or len(found) == 1  # fmt: skip
    assert found[0].frac == pytest.approx(50 / 50.49)
    assert (found[0].bound, found[0].evidence) == (Bound("dram", 0.5), Tier.COUNTERS)
    assert ran._of_capture(facts_of(kernels=kernels.head(0)), {}) == []


def tool(*words: str) -> dict[str, Any]:
    return _(command=["nsys", "profile", "-o", "x", *words])


def test_what_ran() -> None:
    capture = Capture(
        gpu_ops=pd.DataFrame(_(device=["H100 (1)", "A100", "", None, "H100 (1)"])), tools=[tool("./a b", "c"), tool(), tool("./a b", "c")],
        session={"driver": "580", "date": "today", "cuda": "12"}, manifest={"driver": "575", "date": "", "torch": 2.11, "unknown": 1},
    )  # fmt: skip
    facts = facts_of(capture, {answer_steps: ()}, has_timeline=False, gpu="B200")
    found = ran.describe_program(facts)
    assert (found.command, found.gpus, found.driver, found.date) == ("'./a b' c", ["A100", "H100"], "575", "today")
    assert (found.versions, found.wall_ns, found.start_up) == ({"cuda": "12", "torch": "2.11"}, None, None)
    two = Capture(gpu_ops=pd.DataFrame(_(device=[])), tools=[tool("a"), tool("b")])
    found = ran.describe_program(facts_of(two, {answer_steps: ()}, has_timeline=False, gpu="B200"))
    assert (found.command, found.gpus, found.driver, found.date, found.versions) == (None, ["B200"], None, None, {})
    assert ran.describe_program(facts_of(two, {answer_steps: ()}, has_timeline=False, gpu=None)).gpus == []


def answer(*savers: Any) -> Any:
    """A step of two instances in a window of 1,000 ns each: three launches of k, one of l and one copy."""
    view = SimpleNamespace(
        graph=SimpleNamespace(o_duration=np.array([10.0, 30.0, 40.0, 10.0, 999.0])),
        parts=SimpleNamespace(operations=pd.DataFrame({"slack_ns": [1, 9, 2, 5, 0]})),
        keys=np.array(["k", "k", "k", "l", "copy"]), kernels=np.array([True, True, True, True, False]),
        of_step=lambda total: total / 2, share=lambda ns: ns / 1000,
    )  # fmt: skip
    return SimpleNamespace(view=view, savers=savers, name="step")


def test_kernels_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ran, "touched", lambda answer, saver: saver.ops)
    monkeypatch.setattr(ran.step_findings, "id_of", lambda answer, saver: saver.id)
    savers = [SimpleNamespace(id=str(at), ops=np.array(ops, bool), proposal=SimpleNamespace(kind=kind)) for at, (ops, kind) in
              enumerate((([0, 0, 0, 0, 1], "sync"), ([0, 1, 0, 0, 0], "fuse"), ([1, 1, 1, 0, 0], "sync")))]  # fmt: skip
    one, other = ran._of_step(answer(*savers), {"l": (Bound("dram", 0.5), Tier.SAMPLED)})
    assert (one.name, one.step, one.launches, one.ns, one.frac, one.slack_ns) == ("k", "step", 1.5, 40, 0.04, 2)
    assert (one.finding, one.disposition, one.bound, one.evidence) == ("1", Disposition.FUSE, None, Tier.TIMING)
    assert (other.name, other.ns, other.frac, other.finding, other.disposition) == (
        "l",
        5,
        0.005,
        None,
        Disposition.LEAVE,
    )  # half a per cent
    assert (other.bound, other.evidence) == (Bound("dram", 0.5), Tier.SAMPLED)
    small = answer()
    small.view.share = lambda ns: ns / 1001
    assert [row.name for row in ran._of_step(small, {})] == ["k"]


def test_kernels_with_most_time_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    roofline = pd.DataFrame([_(kernel="k", roof_frac=0.5, bound="memory", level="dram")])
    monkeypatch.setattr(
        ran.sampled_reasons, "bounds", lambda facts: {"k": Bound("issue", 0.1), "l": Bound("issue", 0.2)}
    )
    rows = [KernelRow(name=name, short=name, step=step, launches=1.0, ns=ns, frac=0.5, finding=finding, disposition=Disposition.FUSE)
            for name, step, ns, finding in (("m", "a", None, None), ("k", "b", 5.0, "shown"), ("l", "a", 5.0, "hidden"), ("k", "a", 5.0, None), ("z", "a", 0.5, None))]  # fmt: skip
    seen: dict[str, Any] = {}
    monkeypatch.setattr(ran, "_of_step", lambda answer, bounds: seen.update(bounds) or answer)
    causes = [
        verdict(gain_low_frac=0.1, time_to_win_ns=1),
        verdict(gain_low_frac=0.2),
        verdict(gain_low_frac=0.3, rank=2),
    ]
    built = {
        answer_steps: [rows],
        findings.settled: findings.Settled([], {"hidden": "why"}),
        reasons_of_kernels: pd.DataFrame(causes),
    }
    given = _(roofline=roofline, kernels=pd.DataFrame({"kernel": ["k", "l"]}))
    found = ran.list_kernels(facts_of(None, built, sampled=["some"], **given))
    assert [(one.name, one.step) for one in found] == [("k", "a"), ("l", "a"), ("k", "b"), ("z", "a"), ("m", "a")]
    known = Bound("dram", 0.5, Saving(0.2, 0.5))  # of the range with most time to win
    assert seen == {"k": (known, Tier.COUNTERS), "l": (Bound("issue", 0.2), Tier.SAMPLED)}
    assert [(one.finding, one.disposition) for one in found[1:3]] == [
        (None, Disposition.LEAVE),
        ("shown", Disposition.FUSE),
    ]
    seen.clear()
    ran.list_kernels(facts_of(None, built, sampled=None, **given))
    assert seen == {"k": (known, Tier.COUNTERS)}


@pytest.mark.parametrize(("time", "named"), [(1.0, True), (0.999, False)])
def test_a_kernel_with_half_a_per_cent_has_a_row(time: float, named: bool) -> None:
    kernels = pd.DataFrame(
        [_(kernel=name, nsys_time_ns=ns, ncu_time_ns=None, launches=1) for name, ns in (("k", 199.0), ("l", time))]
    )
    facts = facts_of(None, {show_findings: [], answer_steps: ()}, kernels=kernels)
    found = ran._of_capture(facts, {})
    assert [one.name for one in found] == ["k", "l"][: 1 + named]
    assert (found[0].finding, found[0].disposition, found[0].bound, found[0].evidence) == (
        None,
        None,
        None,
        Tier.TIMING,
    )


# Costs of ranks -----------------------------------------------------------------------------------------------------


def copy_rows(*rows: dict[str, Any]) -> pd.DataFrame:
    usual = _(place=0, start_ns=1000, end_ns=1100, direction="Host-to-Device", memory="Pageable -> Device", bytes=2000, range="a", step=0, turn=0,
              alone_ns=100)  # fmt: skip
    return pd.DataFrame([usual | row for row in rows])


def link(rate: float) -> pd.DataFrame:
    return pd.DataFrame([_(name="host_to_device_pinned", ranks=1, bytes=2000, byte_per_s=rate)])


@pytest.mark.parametrize(("rows", "lost"), [
    ([{}], [60.0]),  # 2,000 bytes at 50 bytes a ns
    ([_(bytes=6000)], [0.0]), ([_(alone_ns=50)], [30.0]), ([{}, _(end_ns=1050, alone_ns=50)], [70.0]), ([{}, _(place=1)], [60.0, 60.0]),
    ([_(memory="Pinned -> Device")], []), ([_(direction="Device-to-Device")], []), ([_(direction="Device-to-Host")], [60.0]),
    ([_(end_ns=1000, alone_ns=0)], [0.0]),
])  # fmt: skip
def test_pageable_copies_lose_what_pinned_ones_would_not_take(
    rows: list[dict[str, Any]], lost: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_costs, "roof_at", lambda *asked: np.nan)
    found = list(rank_costs._pageable(copy_rows(*rows), ["rank 0", "rank 1"], pd.DataFrame()))
    assert [one.win_ns for one in found] == lost
    assert [one.rank for one in found] == ["rank 0", "rank 1"][: len(lost)]


def test_a_measured_link_says_what_pinned_copies_take(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {("host_to_device_pinned", 1, 2000): 25e9}
    monkeypatch.setattr(rank_costs, "roof_at", lambda links, *asked: rates[asked])
    (found,) = rank_costs._pageable(copy_rows({}), ["rank 0"], pd.DataFrame())
    assert found.win_ns == 20.0


@pytest.mark.parametrize(("rows", "win"), [
    ([_(step=at) for at in range(3)], 200.0), ([_(step=at) for at in range(2)], None),
    ([_(step=at, bytes=at) for at in range(3)], None), ([_(step=at, range=str(at)) for at in range(3)], None),
    ([_(step=at, alone_ns=10) for at in range(3)], 20.0), ([_(step=-1, turn=at) for at in range(5)], 400.0),
    ([_(step=-1, turn=at) for at in range(4)], None), ([_(step=at, direction="Device-to-Host") for at in range(3)], None),
    ([_(step=at, direction="Peer-to-Peer") for at in range(3)], 200.0), ([_(step=0), *(_(step=-1, turn=at) for at in range(9))], None),
])  # fmt: skip
def test_all_but_the_first_of_equal_copies_could_go(rows: list[dict[str, Any]], win: float | None) -> None:
    found = list(rank_costs._repeated(copy_rows(*rows), ["rank 0"]))
    assert [one.win_ns for one in found] == pytest.approx([] if win is None else [win])


def test_the_copies_that_are_large() -> None:
    ops = pd.DataFrame([_(name="[CUDA memcpy Host-to-Device]", kind=kind, bytes=size, start_ns=start, duration_ns=20, memory="Pinned", path=path)
                        for kind, size, start, path in (("memcpy", 65_537, 100, "s/0"), ("memcpy", 65_536, 0, ""), ("kernel", 1 << 20, 0, ""), ("memcpy", 1 << 20, 300, ""),
                                                        ("memcpy", None, 0, ""))]).astype({"bytes": "Int64"})  # fmt: skip
    place = np.array([1, 0, 0, 0, 0])
    computing = [(np.array([290, 310]), np.array([305, 400])), (np.array([0, 60]), np.array([50, 110]))]
    found = rank_costs._copies(ops, place, computing, np.array([4, 5, 6, 7, 8]))
    assert found[["op", "place", "start_ns", "end_ns", "step", "turn", "alone_ns"]].to_numpy().tolist() == [
        [0, 1, 100, 120, 4, 2, 10], [3, 0, 300, 320, 7, 1, 5]]  # fmt: skip
    assert found["range"].tolist() == ["s/0", UNATTRIBUTED]
    assert found["direction"].tolist() == ["Host-to-Device"] * 2


def set_ups(count: int, name: str = "cudaMalloc", start: int = 1000) -> pd.DataFrame:
    return pd.DataFrame(
        [_(name=name, pid=1, start_ns=start + 100 * at, end_ns=start + 100 * at + 50) for at in range(count)]
    )


def test_time_in_allocations_while_the_gpu_idles_can_be_won() -> None:
    ops = pd.DataFrame([_(pid=1, start_ns=900, duration_ns=120), _(pid=1, start_ns=1400, duration_ns=20)])
    places = pd.DataFrame([_(pid=1, label="rank 0")])
    (found,) = rank_costs._allocations(ops, places, set_ups(5))
    # five calls of 50 ns: the GPU works for 20 ns of the first, and has ended after 20 ns of the last
    assert (found.rank, found.win_ns, len(found.rows)) == ("rank 0", 180, 5)
    (found,) = rank_costs._allocations(ops, pd.concat([places, places]), set_ups(5))
    assert pd.isna(found.rank)
    for few in (set_ups(4), set_ups(5, start=900), set_ups(5, name="cudaStreamCreate"), set_ups(0), None):
        assert list(rank_costs._allocations(ops, places, few)) == []


def test_a_cost_is_a_row() -> None:
    rows = copy_rows(_(end_ns=1010), _(range="b", end_ns=1030), _(end_ns=1025)).assign(op=0)
    assert rank_costs._row(rank_costs.Cost("rank 0", rank_costs.REPEATED, rows, 7.0)) == _(
        rank="rank 0", cause="repeated_copies", range="a", count=3, bytes=6000, time_ns=65, win_ns=7.0)  # fmt: skip
    row = rank_costs._row(rank_costs.Cost("rank 0", rank_costs.ALLOCATION, set_ups(2), 7.0))
    assert (row["count"], row["time_ns"], row["bytes"] is pd.NA, row["range"] is pd.NA) == (2, 100, True, True)


def test_one_gpu_has_no_costs_of_ranks() -> None:
    assert rank_costs.find_costs(facts_of(rank_places=pd.DataFrame(_(label=["rank 0"])))) == []


def test_two_gpus_have_costs_the_largest_gain_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = pd.DataFrame([
        _(name="[CUDA memcpy Host-to-Device]", kind="memcpy", bytes=100_000, start_ns=900 + 10_000 * at, duration_ns=5000 + place, memory="Pageable -> Device",
          path="a", pid=place)
        for at in range(3) for place in (0, 1)])  # fmt: skip
    places = pd.DataFrame([_(pid=0, label="rank 0"), _(pid=1, label="rank 1")])
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    given = _(
        gpu_ops=ops,
        place_of_op=np.array([0, 1] * 3),
        computing=[nothing, nothing],
        step_of_op=np.array([0, 0, 1, 1, 2, 2]),
        links=pd.DataFrame(),
    )
    monkeypatch.setattr(rank_costs, "roof_at", lambda *asked: np.nan)
    facts = facts_of(Capture(setups=None), None, rank_places=places, **given)
    found = rank_costs.build_rank_costs(facts)
    # of 5,000 ns, pinned memory takes 2,000; all but one of three copies could go
    assert found[["rank", "cause", "win_ns", "count", "bytes"]].to_numpy().tolist() == [
        ["rank 1", "repeated_copies", 10_002, 3, 300_000], ["rank 0", "repeated_copies", 10_000, 3, 300_000],
        ["rank 1", "pageable_copies", 9003, 3, 300_000], ["rank 0", "pageable_copies", 9000, 3, 300_000]]  # fmt: skip
    assert rank_costs.build_rank_costs(facts_of(None, None, rank_places=places.head(1))).empty

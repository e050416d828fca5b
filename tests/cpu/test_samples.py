"""Samples of the running program: how each export is read, where known bytes go, and what bad input gets."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from analysis import api, counting
from analysis.capture.load import load
from analysis.facts import Facts
from analysis.formats.errors import InputError
from analysis.formats.report import Report
from analysis.hardware.sampled import column_of
from analysis.nsys_extras import keep_samples
from analysis.pipeline import analyse
from analysis.samples.attribute import Attributed, attribute
from analysis.samples.fit import Fit
from analysis.samples.neighbours import Ran, join
from analysis.samples.overlap import Launches, cut, samples_of
from analysis.tables import known, sampled
from analysis.tables.reuse import _cold_of_groups, build_l2_reuse
from harness import known_bytes, known_steps
from harness.profile import argv, status
from tests.cpu.test_sample_set import SET
from tests.declared import facts_of
from tests.nsys_export import Export

pytestmark = pytest.mark.slow

PERIOD, PEAK = 100_000, 3.35e12
LONG = (260_000, 190_000)  # ns, of the two kernels of an export
NAMES = ("DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]", "GPC Clock Frequency [MHz]")


def play(
    rates: list[float],
    lengths: list[int],
    steps: int,
    *,
    offset: int = 0,
    gap: int = 700,
    pause: int = 0,
    whole: bool = True,
) -> tuple[Launches, np.ndarray, np.ndarray]:
    """Run launches of known rates one after another, and sample their rate as nsys does: `whole` percents, 1 for less.

    Return the launches, the begin of each sample on a clock that is `offset` behind (ns), and the samples.
    """
    random = np.random.default_rng(3)
    order = np.tile(np.arange(len(rates)), steps)
    long = np.array(lengths)[order] + random.integers(-300, 300, len(order))
    idle = np.full(len(order), gap) + np.where(order == 0, pause + random.integers(0, 2000, len(order)), 0)
    start = 500_000 + np.cumsum(long + idle) - long
    end = start + long
    begin = np.arange(0, int(end[-1]) + 500_000, PERIOD)
    edges = np.sort(np.concatenate([start, end, begin, begin + PERIOD]))
    middle = (edges[1:] + edges[:-1]) / 2
    at = np.searchsorted(start, middle, "right") - 1
    rate = np.where((at >= 0) & (middle < end[at]), np.array(rates)[order][at], 0.0)
    moved = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges))])
    mean = (np.interp(begin + PERIOD, edges, moved) - np.interp(begin, edges, moved)) / PERIOD
    shown = np.where((mean > 0) & (mean < 0.01), 0.01, np.round(mean * 100) / 100)
    return Launches(start.astype(float), end.astype(float), order, len(rates)), begin - offset, shown if whole else mean


def attributed(rates: list[float], lengths: list[int], steps: int, **how: int) -> Attributed:
    launches, begin, shown = play(rates, lengths, steps, **how)
    return attribute(0, samples_of(begin), {"dram_read_frac": shown}, launches)


def test_what_nsys_prints_as_1_percent_widens_the_bytes_of_a_step() -> None:
    """A kernel reads 0.2 % of the peak for 400 µs of each step: nsys prints 1 %, and the fit guesses 0.75 %."""
    found = attributed([0.002, 0.5], [400_000, 200_000], 60)
    start, end = found.launches.start[::2], found.launches.end[1::2]
    moved, doubt = found.moved("dram_read_frac", start, end)[0].mean(), found.doubt("dram_read_frac", start, end).mean()
    true = 0.002 * 400_000 + 0.5 * 200_000
    assert moved > 1.01 * true
    assert abs(moved - true) <= doubt < 0.02 * 400_000


def counted(moved: np.ndarray, shown: np.ndarray) -> dict[str, np.ndarray]:
    known = {"dram_read_frac": shown, "dram_read_bytes": moved}
    return sampled._counted(known, PEAK * PERIOD / 1e9)


def test_counted_bytes_take_the_place_of_percents() -> None:
    """The kernel of 0.2 %: nsys prints 1 % and the bytes are exact, so is the step's sum, and nothing is open."""
    rates, lengths = [0.002, 0.5], [400_000, 200_000]
    launches, begin, shown = play(rates, lengths, 60)
    exact = play(rates, lengths, 60, whole=False)[2]
    shares = counted(np.round(exact * PEAK * PERIOD / 1e9), shown)
    found = attribute(0, samples_of(begin), shares, launches, frozenset(shares))
    start, end = launches.start[::2], launches.end[1::2]
    moved = found.moved("dram_read_frac", start, end)[0]
    true = (0.002 * (launches.end - launches.start)[::2] + 0.5 * (launches.end - launches.start)[1::2]).mean()
    assert moved.mean() == pytest.approx(true, rel=0.007)  # the gap after a step takes some of its last sample
    assert not found.doubt("dram_read_frac", start, end).any()
    figure, percents = (one.figure("dram_read_frac", [0]) for one in (found, attributed(rates, lengths, 60)))
    assert figure is not None
    assert percents is not None
    assert abs(figure.rate - 0.002) <= figure.half < 0.5 * percents.half


@pytest.mark.parametrize(
    ("bytes_of", "percent"),
    [(np.zeros(3), [0.2, 0.3, 0.0]), (np.array([1e8, -2e9, 1e8]), [0.2] * 3), (np.array([1e8, np.nan, 0]), [0.2] * 3)],
)
def test_a_counter_that_stands_still_or_overflows_leaves_the_percents(
    bytes_of: np.ndarray, percent: list[float]
) -> None:
    assert counted(bytes_of, np.array(percent)) == {}
    assert set(counted(np.array([0, 5e5, 0]), np.array([0.0, 0.01, 0.0]))) == {"dram_read_frac"}


@pytest.mark.parametrize("offset", [0, -43_000, 180_000])
def test_short_launches_among_others_are_inside_their_intervals(offset: int) -> None:
    rates = [0.6, 0.0, 0.4, 0.5, 0.05, 0.9]
    found = attributed(rates, [17_000, 9_000, 12_000, 25_000, 10_000, 30_000], 800, offset=offset)
    assert found.clock.offset == pytest.approx(offset, abs=1_500)
    figures = [found.figure("dram_read_frac", [one]) for one in range(len(rates))]
    assert all(one is not None and abs(one.rate - rate) <= one.half for one, rate in zip(figures, rates, strict=True))
    whole = found.figure("dram_read_frac", list(range(len(rates))))
    true = np.dot(rates, found.time) / found.time.sum()
    assert whole is not None
    assert whole.rate == pytest.approx(true, rel=0.01)
    assert whole.half < 0.05 * true


def test_what_a_kernel_does_late_counts_for_it_and_not_for_its_neighbour() -> None:
    """Kernels of 22, 15 and 24 µs in three parts each: they begin idle, and the second reads most at its end."""
    rates = [0.0, 0.6, 0.6, 0.0, 0.2, 0.8, 0.0, 0.1, 0.1]
    lengths = [2_000, 10_000, 10_000, 1_500, 6_500, 7_000, 2_500, 11_500, 10_000]
    parts, begin, shown = play(rates, lengths, 1_500, offset=1_700, gap=0, pause=900)
    launches = Launches(parts.start[::3], parts.end[2::3], parts.group[::3] // 3, 3)
    found = attribute(0, samples_of(begin), {"dram_read_frac": shown}, launches)
    moved = np.bincount(parts.group // 3, (parts.end - parts.start) * np.array(rates)[parts.group])
    figures = [found.figure("dram_read_frac", [one]) for one in range(3)]
    off = [abs(one.rate - true) for one, true in zip(figures, moved / found.time, strict=True) if one is not None]
    assert max(off) < 0.02
    assert all(one is not None and distance < one.half < 0.06 for one, distance in zip(figures, off, strict=True))


def test_launches_are_cut_at_their_ends_and_where_others_run_beside_them() -> None:
    """60 µs in four parts, 5 µs in one; the second long launch has another launch beside its second half."""
    start, end = np.array([0.0, 70_000, 100_000, 200_000]), np.array([60_000.0, 130_000, 140_000, 205_000])
    pieces = cut(Launches(start, end, np.array([0, 0, 1, 2]), 3))
    assert pieces.launches.end[0] - pieces.launches.start[0] == 2_000
    assert np.bincount(pieces.of).tolist() == [6, 3, 1]  # two parts of group 0 run alone and beside group 1
    assert np.bincount(pieces.of, pieces.time).tolist() == [120_000, 40_000, 5_000]


def test_samples_of_long_launches_need_no_neighbours_and_those_of_tiny_ones_do() -> None:
    long = attributed([0.6, 0.2], [400_000, 900_000], 60)
    assert sorted(long.joints) == [[0], [1]]
    tiny = attributed([0.6, 0.0, 0.3, 0.1, 0.0, 0.5], [2_000] * 6, 2_000)
    assert max(len(members) for members in tiny.joints) > 1
    figure = tiny.figure("dram_read_frac", list(range(6)))
    assert figure is not None
    assert figure.rate == pytest.approx(0.25, rel=0.03)


@pytest.mark.parametrize(
    ("lengths", "joints"),
    [
        ([100, 100], [[0], [1]]),
        ([100, 8, 8, 100], [[0], [1, 2], [3]]),
        ([100, 8, 200], [[0], [0, 1], [2]]),
        ([12, 8, 200, 8], [[0], [0, 1, 3], [2]]),
        ([8, 8, 30, 8, 8], [[0, 1], [2], [3, 4]]),
        ([8, 200, 8], [[0, 2], [1]]),
        ([2_000, 1], [[0], [1]]),
    ],
)
def test_neighbours_share_a_figure_only_where_they_need_to(lengths: list[int], joints: list[list[int]]) -> None:
    """At half of the peak, 1 µs at the edges is 10 % of 10 µs: a launch stands alone from about 11 µs on.

    1 µs beside 2 ms stays open: 0.05 % of the time.
    """
    count, launches = len(lengths), 100
    time = np.array(lengths) * 1000.0 * launches
    follows = np.zeros((count + 1, count + 1))
    follows[range(count), [*range(1, count), 0]] = launches
    fit = Fit(np.full(count, 0.5), np.zeros((count, count)), np.zeros(count), np.zeros(0))
    assert sorted(join([fit], Ran(time, follows))) == joints


@pytest.mark.parametrize(("tensor", "joints"), [(0.0, [[0], [0, 1], [2]]), (0.8, [[0], [1], [2]])])
def test_a_kernel_is_known_by_its_busiest_unit(tensor: float, joints: list[list[int]]) -> None:
    """15 µs at 5 % of DRAM between others of 60 %: the edges are ± 4 % of the peak, below a tenth of 80 % but not of 5 %.

    The others last 50 µs: ± 1.2 % of 60 %, and of 80 % ± 1.6 %.
    """
    time = np.array([50_000.0, 15_000.0, 50_000.0]) * 100
    follows = np.zeros((4, 4))
    follows[range(3), [1, 2, 0]] = 100
    reads, products = (
        Fit(np.array(rates), np.zeros((3, 3)), np.zeros(3), np.zeros(0)) for rates in ([0.6, 0.05, 0.6], [tensor] * 3)
    )
    assert sorted(join([reads, products], Ran(time, follows))) == joints


def test_a_faint_rate_is_an_interval_that_reaches_zero() -> None:
    figure = attributed([0.0004], [80_000], 400).figure("dram_read_frac", [0])
    assert figure is not None
    assert figure.rate - figure.half <= 0.0004 <= figure.rate + figure.half


def test_a_clock_that_jumps_is_noticed() -> None:
    launches, begin, shown = play([0.8, 0.1, 0.5], [30_000, 40_000, 25_000], 1500, pause=333_000)
    begin = begin + np.where(np.arange(len(begin)) > len(begin) / 2, 140_000, 0)
    assert attribute(0, samples_of(begin), {"dram_read_frac": shown}, launches).jumped


def test_lost_samples_are_counted() -> None:
    found = samples_of(np.delete(np.arange(0, 100 * PERIOD, PERIOD), slice(40, 60)))
    assert (found.lost, found.largest_gap) == (20, 21 * PERIOD)


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        ("DRAM Read Bandwidth [Throughput %]", "dram_read_frac"),  # GA100, GH100, GB20x
        ("DRAM Write Throughput [Throughput %]", "dram_write_frac"),  # TU10x
        ("DRAM Read Bytes [Bytes]", "dram_read_bytes"),  # our set
        ("SM Instructions/Tensor Active [Throughput %]", "tensor_active_frac"),
        ("Tensor Active [Throughput %]", "tensor_active_frac"),
        ("SMs Active [Throughput %]", "sm_active_frac"),
        ("SM Active", "sm_active_frac"),
        ("Compute Warps in Flight [Throughput %]", "warps_frac"),
        ("Compute Warps in Flight [Avg Warps per Cycle]", ""),
        ("Vertex/Tess/Geometry Warps in Flight [Throughput %]", ""),
        ("NVLink RX Responses User Data [Throughput %]", "nvlink_rx_frac"),
        ("NVLink TX Requests Protocol Data [Throughput %]", "nvlink_protocol_frac"),
        ("PCIe RX Throughput [Throughput %]", "pcie_rx_frac"),
        ("PCIe Read Requests to BAR1 [Requests]", ""),
        ("GPC Clock Frequency [MHz]", "gpc_clock_hz"),
    ],
)
def test_metric_names_of_every_architecture(metric: str, column: str) -> None:
    assert column_of(metric) == column


def export(
    path: Path,
    gpus: int = 1,
    *,
    names: bool = True,
    known: bool = True,
    rates: tuple[float, float] = (0.5, 0.2),
    ranges: tuple[str, ...] = ("step",),
    exact: bool = False,
) -> Path:
    """Write an SQLite export: two kernels in a step, and samples of some GPUs; `known`: with metrics that have a column.

    `exact`: with bytes read, which are 3 % more than the percents say.
    """
    made = Export(2025)
    launches, begin, shown = play(list(rates), [*LONG], 40)
    mean = play(list(rates), [*LONG], 40, whole=False)[2]
    for gpu in range(2):
        made.gpu(gpu, "NVIDIA H100 80GB HBM3")
    for at, (start, end, group) in enumerate(zip(launches.start, launches.end, launches.group, strict=True)):
        for gpu in range(2):
            call = (int(start) - 9_000 + 10 * gpu, int(start) - 8_000 + 10 * gpu)
            made.launch(("first", "second")[group], call, (int(start), int(end)), device=gpu)
        if not group:
            for deep, name in enumerate(ranges):
                made.push(name, int(start) - 9_500 + deep, int(launches.end[at + 1]) - 5_000 - deep)
    made.save(path)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE GPU_METRICS (rawTimestamp INT, timestamp INT, typeId INT, metricId INT, value INT)")
        db.execute("CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, sourceId INT, metricId INT, metricName TEXT)")
        for gpu in range(gpus):
            kind = (1 << 48) | gpu
            if names:
                listed = NAMES if known else ("Frames [Throughput %]",)
                db.executemany(
                    "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?, ?)",
                    [(kind, kind, number, name) for number, name in enumerate(listed)],
                )
            rows = [(int(t), int(t), kind, 0, round(v * 100)) for t, v in zip(begin, shown, strict=True)]
            rows += [(int(t), int(t), kind, 1, 0) for t in begin] + [
                (int(t), int(t), kind, 2, 1_980_000_000) for t in begin
            ]
            if exact:
                db.execute(
                    "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, 3, 'DRAM Read Bytes [Bytes]')", (kind, kind)
                )
                more = 1.03 * PEAK * PERIOD / 1e9
                rows += [(int(t), int(t), kind, 3, round(v * more)) for t, v in zip(begin, mean, strict=True)]
            db.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?, ?)", rows)
        if not names:
            db.execute("DROP TABLE TARGET_INFO_GPU_METRICS")
    db.close()
    return path


def as_folder(database: Path, folder: Path, form: str) -> Path:
    """Write the tables of an export as a folder of Parquet files, Arrow files or Arrow streams."""
    folder.mkdir()
    with sqlite3.connect(database) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            table = pa.Table.from_pandas(pd.read_sql(f'SELECT * FROM "{name}"', db), preserve_index=False)
            if form == "parquet":
                pq.write_table(table, folder / f"{name}.parquet")
                continue
            opened = pyarrow.ipc.new_file if form == "arrow" else pyarrow.ipc.new_stream
            with opened(str(folder / f"{name}.arrow"), table.schema) as stream:
                stream.write_table(table)
    db.close()
    return folder


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
def test_a_folder_of_tables_reads_as_the_database(tmp_path: Path, form: str) -> None:
    database = export(tmp_path / "a.sqlite", gpus=2)
    whole, folder = load([database]), load([as_folder(database, tmp_path / "tables", form)])
    assert whole.samples is not None
    assert folder.samples is not None
    pd.testing.assert_frame_equal(folder.samples, whole.samples, check_dtype=False)
    for name in ("gpu_ops", "ranges"):
        pd.testing.assert_frame_equal(
            getattr(folder, name), getattr(whole, name), check_categorical=False, check_dtype=False
        )
    assert [one.kind for one in folder.files] == ["nsys folder"]


def test_a_folder_below_another_is_one_file(tmp_path: Path) -> None:
    as_folder(export(tmp_path / "a.sqlite"), tmp_path / "exports", "parquet")
    (tmp_path / "a.sqlite").unlink()
    assert [(one.name, one.kind) for one in load([tmp_path]).files] == [("exports", "nsys folder")]


def test_one_table_alone_asks_for_its_folder(tmp_path: Path) -> None:
    folder = as_folder(export(tmp_path / "a.sqlite"), tmp_path / "exports", "parquet")
    with pytest.raises(InputError, match="give the whole folder"):
        load([folder / "GPU_METRICS.parquet"])


@pytest.mark.parametrize("table", ["GPU_METRICS", "StringIds"])
def test_a_cut_table_is_named(tmp_path: Path, table: str) -> None:
    folder = as_folder(export(tmp_path / "a.sqlite"), tmp_path / "exports", "parquet")
    file = folder / f"{table}.parquet"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(InputError, match=f"table {table} is damaged"):
        load([folder])


def test_the_kept_file_holds_the_samples_and_nothing_of_the_machine(tmp_path: Path) -> None:
    database = export(tmp_path / "a.sqlite")
    assert keep_samples(database, tmp_path)
    whole, kept = load([database]), load([tmp_path / "a.sqlite", tmp_path / "samples.parquet"])
    assert whole.samples is not None
    assert kept.samples is not None
    near = whole.samples["time_ns"].isin(kept.samples["time_ns"])
    pd.testing.assert_frame_equal(kept.samples, whole.samples[near].reset_index(drop=True), atol=1e-6)
    written = (tmp_path / "samples.parquet").read_bytes()
    assert len(written) < 20_000
    assert not any(word in written for word in (b"H100", b"first", str(tmp_path).encode()))


def test_bytes_pass_the_kept_file_into_the_tables_and_the_note(tmp_path: Path) -> None:
    """Bytes and percents disagree by 3 %: the bytes win, in steps and kernels, also from the kept file."""
    database = export(tmp_path / "a.sqlite", exact=True)
    assert keep_samples(database, tmp_path)
    for kept in ([database], [database, tmp_path / "samples.parquet"]):
        found = analyse(load(kept))
        true = 1.03 * (0.5 * LONG[0] + 0.2 * LONG[1]) * PEAK / 1e9
        step = found.tables["sampled_steps"].set_index("range").loc["step"]
        assert step["dram_read_bytes"] == pytest.approx(true, rel=0.005)
        assert found.tables["sampled_kernels"]["dram_read_bytes"].sum() / 40 == pytest.approx(true, rel=0.005)
        assert any("nsys counted the bytes of DRAM" in note for note in found.report.notes)
    assert not any("nsys counted" in note for note in analyse(load([export(tmp_path / "b.sqlite")])).report.notes)


def test_a_damaged_kept_file_is_named(tmp_path: Path) -> None:
    database = export(tmp_path / "a.sqlite")
    keep_samples(database, tmp_path)
    file = tmp_path / "samples.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"samples\.parquet: is damaged"):
        load([file])


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return Facts(load([export(tmp_path_factory.mktemp("samples") / "a.sqlite", gpus=2)]))


def test_tables_give_bytes_of_kernels_layers_and_steps_of_each_gpu(facts: Facts) -> None:
    tables = analyse(facts.raw).facts
    of = {one.name: one for one in analyse(facts.raw, only="sampled").declared if one.name.startswith("sampled_")}
    kernels, steps = (tables.once(of[name]) for name in ("sampled_kernels", "sampled_steps"))
    assert set(kernels["gpu"]) == {0, 1}
    assert set(kernels["tier"]) == {"sampled"}
    time = kernels.set_index(["gpu", "kernel"])["nsys_time_ns"]
    read = kernels.set_index(["gpu", "kernel"])["dram_read_bytes"]
    error = kernels.set_index(["gpu", "kernel"])["dram_read_error_bytes"]
    for name, rate in (("first", 0.5), ("second", 0.2)):
        true = rate * time[0, name] * PEAK / 1e9
        assert abs(read[0, name] - true) <= error[0, name] < 0.1 * true
    step = steps[(steps["range"] == "step") & (steps["gpu"] == 1)].iloc[0]
    assert step["instances"] == 40
    assert step["dram_read_bytes"] == pytest.approx((0.5 * LONG[0] + 0.2 * LONG[1]) * PEAK / 1e9, rel=0.03)
    assert step["sm_clock_hz"] == pytest.approx(1.98e9, rel=0.02)


def slowed(facts: Facts, lowest: float) -> Report:
    """Return the report on a capture in whose second half the clock of the SMs is `lowest`, Hz; before, 1.98e9."""
    rows = facts.raw.samples
    assert rows is not None
    late = rows["time_ns"] > rows["time_ns"].median()
    slower = replace(facts.raw, samples=rows.assign(gpc_clock_hz=rows["gpc_clock_hz"].mask(late, lowest)))
    return analyse(slower).report


def test_a_clock_that_falls_inside_the_run_is_a_finding(facts: Facts) -> None:
    """1.4 of 1.98 GHz in half of 40 steps of 450.7 µs: kernels that compute could be faster by 0.293 of 9.0 ms."""
    found = [one for one in slowed(facts, 1.4e9).findings if one.kind == "lowered_clock"]
    assert [one.id for one in found] == ["lowered_clock · program · GPU 0"]
    assert found[0].sentence.endswith("1 other GPU does so, too.")
    assert "is 1400 MHz to 1980 MHz" in found[0].sentence
    assert found[0].saves_ns.low == 0
    assert found[0].saves_ns.high == pytest.approx((1 - 1.4 / 1.98) * 20 * 450_700, rel=0.05)
    assert [(one.table, one.column, one.value, str(one.evidence)) for one in found[0].cells][1] == (
        "sampled_steps", "lowest_clock_hz", 1.4e9, "sampled",
    )  # fmt: skip


def test_a_clock_that_hardly_falls_is_no_finding(facts: Facts) -> None:
    assert not [one for one in slowed(facts, 1.9e9).findings if one.kind == "lowered_clock"]


def test_the_first_lines_say_how_busy_the_units_are_in_a_step(facts: Facts) -> None:
    """DRAM moves 0.5 × 260 + 0.2 × 190 of about 451 µs: 37 % of the peak."""
    report = analyse(facts.raw).report
    assert sampled.use_of_step(facts) == {"DRAM": pytest.approx(0.373, abs=0.004)}
    assert report.trust.sentence == "Counters were sampled in the running program. A step uses DRAM at 37% of the " + (
        "peak, mean of 2 GPUs."
    )
    assert report.coverage.sentence.endswith("times and samples.")


def test_l2_reuse_is_what_ncu_reads_cold_less_what_samples_read_in_place(facts: Facts) -> None:
    """Alone, `first` reads twice what it does in place; ncu counted one of its launches. It did not count `second`."""
    cold = np.full(len(facts.launches), np.nan)
    first = np.flatnonzero(facts.launches["kernel"] == "first")
    in_place = 0.5 * LONG[0] * PEAK / 1e9
    cold[first[3]] = 2 * in_place
    given = {"sampled": facts.sampled, "measured": pd.DataFrame({"dram_read_bytes": cold})}
    rows = build_l2_reuse(facts_of(ncu={"cache_control": "all"}, **given))
    (row,) = (one for one in rows.to_dict("records") if one["gpu"] == int(facts.launches["device"][first[3]][-2]))
    assert (row["kernel"], row["launches"]) == ("first", 40)
    assert row["cold_read_bytes"] == pytest.approx(40 * 2 * in_place)
    assert row["reused_frac"] == pytest.approx(0.5, abs=0.02)
    assert build_l2_reuse(facts_of(ncu={"cache_control": "none"}, **given)).empty
    little = pd.DataFrame({"dram_read_bytes": cold / 50})  # the interval in place is wider than a tenth of that
    assert build_l2_reuse(facts_of(ncu={"cache_control": "all"}, **(given | {"measured": little}))).empty


def test_the_lanes_of_the_timeline_follow_the_samples(facts: Facts) -> None:
    rows = analyse(facts.raw, only="sampled_times").facts.once(sampled.build_sampled_times)
    assert set(zip(rows["gpu"], rows["lane"], strict=True)) == {
        (gpu, name) for gpu in (0, 1) for name in ("DRAM", "SM clock")
    }
    lane = rows[(rows["gpu"] == 0) & (rows["lane"] == "DRAM")]
    moved = (lane["share_frac"] * lane["extent_ns"]).sum()
    assert moved == pytest.approx(40 * (0.5 * LONG[0] + 0.2 * LONG[1]), rel=0.03)


def test_a_kernel_without_counters_has_its_bound_from_samples(facts: Facts) -> None:
    report = analyse(facts.raw).report
    bound = {one.name: (one.bound and one.bound.by, str(one.evidence)) for one in report.kernels}
    assert bound["first"] == ("dram", "sampled")


def test_the_plan_asks_for_detail_only_where_samples_leave_it_open(tmp_path: Path) -> None:
    export(tmp_path / "a.sqlite", rates=(0.2, 0.97))
    kept = tmp_path / "captures"
    kept.mkdir()
    (tmp_path / "a.sqlite").rename(kept / "a.sqlite")
    table, selection = counting.plan(kept, 60.0)
    assert selection["settled_share"] == pytest.approx(LONG[1] / sum(LONG), abs=0.02)
    assert "at a roof by the samples" in counting.said(selection)
    assert "first" in table


def test_a_set_reads_nothing_and_a_kernel_what_its_counted_launches_do(facts: Facts) -> None:
    """Of two launches of a kernel, ncu counted one, of 5 bytes; nothing is known of the other kernel."""
    (one, _) = facts.sampled
    groups = pd.DataFrame({"kernel": ["[CUDA memset]", "first", "second"], "launches": [2, 2, 1]})
    launches = Launches(np.arange(5.0), np.arange(5.0) + 1, np.array([0, 1, 0, 1, 2]), 3)
    some = replace(one, groups=groups, rows=np.array([-1, 0, -1, 1, 2]), found=replace(one.found, launches=launches))
    assert _cold_of_groups(some, np.array([5.0, np.nan, np.nan])).tolist() == pytest.approx(
        [0, 10, np.nan], nan_ok=True
    )


def test_launches_of_known_bytes_are_held_against_their_names(tmp_path: Path) -> None:
    report = analyse(load([export(tmp_path / "a.sqlite", ranges=("alone", "known read64MiB"))]), only="known")
    rows = report.tables["known_bytes"]
    read = rows[rows["metric"] == "read"]
    assert set(read["known_bytes"]) == {64 << 20}
    assert set(read["inside"]) == {"no"}  # the launches move something else
    window = report.tables["known_windows"].iloc[0]
    moved = 40 * (0.5 * LONG[0] + 0.2 * LONG[1]) * PEAK / 1e9
    assert (window["window"], window["metric"], window["known_bytes"]) == ("alone, read", "read", 80 * (64 << 20))
    assert window["sampled_low_bytes"] <= window["sampled_high_bytes"] == pytest.approx(moved, rel=0.02)
    assert window["off_low_frac"] == pytest.approx(window["sampled_low_bytes"] / window["known_bytes"] - 1)


def test_a_window_over_nvlink_is_held_against_the_link(facts: Facts) -> None:
    """Samples of half of the link's 478.1 GB/s give half of what it could move in their time."""
    one = facts.sampled[1]
    found = replace(one.found, values={known.SENT: np.full(len(one.found.samples.begin), 0.5)})
    named = replace(one, found=found, groups=one.groups.assign(folded="alone/known peer64MiB"))
    (row,) = known._windows(named)
    assert (row["window"], row["gpu"], row["metric"], row["known_bytes"]) == ("alone, peer", 1, "sent", 80 * (64 << 20))
    assert row["sampled_low_bytes"] == pytest.approx(0.5 * 478.1e9 * row["samples"] * found.samples.period / 1e9)


def test_a_step_of_known_launches_sums_them(tmp_path: Path) -> None:
    """Two kernels of one range: the step is known to move both, and the samples give what both move."""
    ranges = ("among a", "step", "known read64MiB")
    rows = analyse(load([export(tmp_path / "a.sqlite", ranges=ranges)]), only="known").tables["known_bytes"]
    step = rows[(rows["how"] == "among, step") & (rows["metric"] == "read")].iloc[0]
    assert (step["range"], step["launches"], step["known_bytes"]) == ("among a", 40, 128 << 20)
    assert step["sampled_bytes"] == pytest.approx((0.5 * LONG[0] + 0.2 * LONG[1]) * PEAK / 1e9, rel=0.02)


def test_the_self_test_compiles_samples_exports_and_reports(tmp_path: Path) -> None:
    build = known_bytes.build(tmp_path, "90")
    assert (build[0], "-arch=sm_90" in build) == ("nvcc", True)
    capture, exports, report = known_bytes.commands(tmp_path)
    assert capture[capture.index("--sample-hz") + 1] == "10000"
    assert exports[1:3] == ["--only", "nsys"]
    assert report[-1] == str(tmp_path)


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> None:
    """Put a tool on PATH that prints what a real one would."""
    tool = folder / "bin" / name
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")


def test_the_cost_of_samples_is_a_row_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, tmp_path, "nsys", 'echo "stream step_us 140.25"; echo "graph step_us 124.5"')
    assert known_bytes.cost(tmp_path, 2, "9.0") == 0
    rows = pd.read_csv(tmp_path / "known_cost.csv")
    mean = rows.groupby(["program", "samples"])["step_us"].agg(["size", "mean"])
    assert mean.loc[("graph", "no")].tolist() == [2, 124.5]
    assert len(mean) == 4
    for made in ("raw", "bin/GpuMetrics"):
        (tmp_path / made).mkdir()
    (tmp_path / "bin/GpuMetrics/gh100.config").write_text(SET)
    assert known_bytes.cost(tmp_path, 1, "9.0") == 0
    assert set(pd.read_csv(tmp_path / "known_cost.csv")["samples"]) == {"no", "yes", "bytes"}


def test_bytes_of_a_step_are_held_against_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = '"ID","dram__bytes_read.sum","dram__bytes_write.sum"\n"","byte","byte"'
    stand_in(monkeypatch, tmp_path, "ncu", f'printf \'==PROF==\\n{head}\\n"0","600","60"\\n"1","400","0"\\n\'')
    run = tmp_path / "ours"
    assert known_steps.main([str(run), "10", "program"]) == 1
    api.analyse(api.load(export(tmp_path / "a.sqlite", ranges=("step", "kernel")))).save(run)
    assert known_steps.main([str(run), "10", "program"]) == 0
    read, written = (line.split(",") for line in capsys.readouterr().out.splitlines())
    assert (read[:2], read[4:], written[4]) == (["ours", "read"], ["1000", "100"], "60")
    assert float(read[2]) == pytest.approx((0.5 * LONG[0] + 0.2 * LONG[1]) * PEAK / 1e9, rel=0.02)


def test_the_report_says_how_well_the_samples_resolve(facts: Facts) -> None:
    notes = [note for note in analyse(facts.raw).report.notes if note.startswith("GPU ")]
    assert any("0 samples lost" in note and "single kernels in 100" in note for note in notes)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"gpus": 1}, "samples of GPU 1"),
        ({"names": False}, "the names of the metrics are unknown"),
        ({"known": False}, "samples no metric that this program knows"),
    ],
)
def test_partial_samples_are_a_sentence(tmp_path: Path, how: dict[str, int], said: str) -> None:
    report = analyse(load([export(tmp_path / "a.sqlite", **how)])).report
    assert any(said in f"{one.what} {one.why}" for one in report.missing)
    assert report.kernels or report.tables


def test_samples_without_kernels_stay_a_timeline(tmp_path: Path) -> None:
    database = export(tmp_path / "a.sqlite")
    with sqlite3.connect(database) as db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    db.close()
    report = analyse(load([database])).report
    assert not [table for table in report.tables if table.name.startswith("sampled")]


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("Illegal --gpu-metrics-devices usage.\nNone of the installed GPUs are supported:\n  H100 - Already under profiling",
         "another program samples"),
        ("Illegal --gpu-metrics-devices usage.\nInsufficient privilege, see ERR_NVGPUCTRPERM", "administrators"),
        ("Illegal --gpu-metrics-devices argument: 9.\nNo such GPU: 9.", "cannot sample the GPUs"),
        ("unrecognised option '--gpu-metrics-devices=all'", "rejects its options"),
        ("Collecting data...\nGPU 0: General Metrics for NVIDIA GH100 (any frequency)", ""),
    ],
)  # fmt: skip
def test_the_driver_learns_why_nsys_does_not_sample(log: str, why: str) -> None:
    found = status.why_unsampled(log)
    assert why in found
    assert bool(found) == bool(why)


def test_the_timeline_samples_at_the_asked_rate() -> None:
    assert "--gpu-metrics-frequency=20000" in argv.nsys(sample_hz=20_000)
    assert not [word for word in argv.nsys() if "gpu-metrics" in word]
    with pytest.raises(argv.ArgumentError):
        argv.options_of("nsys", ["--sample-hz", "5"])

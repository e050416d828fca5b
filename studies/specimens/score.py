"""Count how often the diagnoses are right: our rules and ncu's against the answer key.

    python -m studies.specimens.score                     print the figures of the development half
    python -m studies.specimens.score --half validation   print those of another set; `both` for both halves
    python -m studies.specimens.score --each              also print a line for each specimen

The slow version of a pair counts, and every clean kernel. An abstention counts as wrong.
"""

import csv
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.capture.load import load
from analysis.diagnosis.judge import Verdict, judge
from analysis.diagnosis.limits import Limits, find_limits
from analysis.diagnosis.savers import Saver, answers
from analysis.formats.console import documented
from analysis.formats.report import kind_of
from analysis.hardware.devices import find_device
from analysis.hardware.metrics import derive
from analysis.replay.spans import spans
from analysis.tables.join import prepare_counters
from kernels.specimens import registry

CAPTURES = registry.FOLDER / "captures"
TIMELINES = Path(__file__).with_name("captures")
RECAPTURED = Path(__file__).with_name("recaptured")  # timelines captured a second time, and those of the holdout
NCU_RULES = Path(__file__).with_name("ncu_rules.toml")
GPU = "NVIDIA H200"
DEFAULT, FULL = "default", "full"
SURE = 0.8
SLACK = 1.1  # an achieved speed-up may exceed its bound by this factor, as clocks differ between captures
NEAR = 0.25  # a bound is near if it is off the achieved speed-up by this share or less
EVENTS_NS = 1300  # time by CUDA events minus time by ncu: median over the clean kernels


@dataclass(frozen=True)
class Score:
    """The verdicts of the rules on one specimen. `achieved` is slow over fixed by CUDA events, None if it is clean."""

    specimen: str
    half: str
    answer: str
    version: str
    verdicts: tuple[Verdict, ...]
    why: str
    roof: float
    time_ns: float
    achieved: float | None

    @property
    def first(self) -> str:
        """Return the first cause, '' where the rules abstain."""
        return self.verdicts[0].defect if self.verdicts else ""

    @property
    def right(self) -> bool:
        return self.first == self.answer

    @property
    def predicted(self) -> float | None:
        """Return the largest speed-up by the bound of the right cause, converted to times of CUDA events."""
        mine = [one for one in self.verdicts if one.defect == self.answer]
        if self.achieved is None or not mine:
            return None
        return speedup(self.time_ns, mine[0].gain)


def speedup(time_ns: float, gain: float) -> float:
    """Return the speed-up by CUDA events of a kernel of `time_ns` by events that loses the share `gain` by ncu."""
    return time_ns / (time_ns * (1 - gain) + EVENTS_NS * gain)


@cache
def read_half(half: str, tier: str = FULL) -> pd.DataFrame:
    """Return the counters of a half, by specimen: the default metrics, and for FULL also those of full sections."""
    folder = CAPTURES / half
    frame = _read(sorted(folder.glob("ncu_*.csv.xz")))
    full = sorted(folder.glob("full_raw*.csv.xz")) if tier == FULL else []
    return frame.combine_first(_read(full)).reindex(frame.index) if full else frame


def _read(files: Sequence[Path]) -> pd.DataFrame:
    capture = load(files)
    counters = prepare_counters(capture.counters)
    values = derive(counters, capture.counter_units).assign(**_texts(counters))
    return values.set_axis(counters["path"].str.removeprefix("specimens/"), axis=0)


def _texts(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return what the rules read beside the metrics: the kernel's name and the shape of its launch."""
    return {name: rows[name] for name in ("kernel", "grid", "block")}


@cache
def limits() -> Limits:
    """Return the limits of the GPU of the captures."""
    device = find_device(GPU)
    found = find_limits(device, device.sm_count if device else None)
    assert found is not None
    return found


@cache
def times() -> Mapping[str, float]:
    """Return the time of each specimen by CUDA events, in ns."""
    with (CAPTURES / "times.csv").open(newline="", encoding="utf-8") as stream:
        return {row["specimen"]: float(row["time_ns"]) for row in csv.DictReader(stream)}


@cache
def score_kernels(half: str, tier: str = FULL) -> list[Score]:
    """Return the score of each slow and clean specimen of a half, sorted by name."""
    frame = read_half(half, tier)
    names = [one for one in registry.specimens() if one.half == half and one.version != "fixed"]
    rows = frame.reindex([one.name for one in names])
    verdicts = judge(rows, limits())
    return [
        Score(
            one.name, half, one.defect, one.version, tuple(verdicts.of(place)), str(verdicts.why[place]),
            float(verdicts.evidence.roof[place]), times()[one.name], _achieved(one),
        )
        for place, one in enumerate(names)
    ]  # fmt: skip


def _achieved(one: registry.Specimen) -> float | None:
    return times()[one.name] / times()[one.name.replace("/slow", "/fixed")] if one.version == "slow" else None


@dataclass(frozen=True)
class TimelineScore:
    """The changes worth making in one program. `achieved` is slow over fixed by the wall clock, without a profiler."""

    specimen: str
    half: str
    answer: str
    savers: tuple[Saver, ...]
    achieved: float

    @property
    def first(self) -> str:
        """Return the cause of the first finding, '' if no change is worth one."""
        return self.savers[0].proposal.kind if self.savers else ""

    @property
    def right(self) -> bool:
        return self.first == kind_of(self.answer)

    @property
    def named(self) -> bool:
        """Whether any finding names the cause."""
        return any(one.proposal.kind == kind_of(self.answer) for one in self.savers)


@cache
def score_timelines(half: str) -> list[TimelineScore]:
    """Return the score of each slow program of a set, from its newest capture."""
    found = {one.specimen: one for folder in (TIMELINES, RECAPTURED) for one in _score_folder(folder, half)}
    return [found[name] for name in sorted(found)]


def _score_folder(folder: Path, half: str) -> Iterator[TimelineScore]:
    if not (folder / "times.csv").is_file():
        return
    capture = load([folder])
    rows = capture.ranges
    rows = rows[rows["path"].str.fullmatch(f"specimens/{half}/\\w+/slow")]
    with (folder / "times.csv").open(newline="", encoding="utf-8") as stream:
        wall = {row["specimen"]: float(row["time_ns"]) for row in csv.DictReader(stream)}
    for path, own in rows.groupby("path", sort=False):
        name = str(path).removeprefix("specimens/")
        achieved = wall[name] / wall[name.replace("/slow", "/fixed")]
        found = answers(capture, spans(capture, own, "A specimen runs once."))
        yield TimelineScore(name, half, name.split("/")[1], found[0].savers if found else (), achieved)


# --------------------------------------------------------------------------------------------------------- ncu's rules


@cache
def _ncu_entries() -> tuple[tuple[re.Pattern[str], re.Pattern[str], tuple[str, ...]], ...]:
    entries = tomllib.loads(NCU_RULES.read_text("utf-8"))["rule"]
    return tuple((re.compile(one["rule"]), re.compile(one.get("text", "")), tuple(one["defect"])) for one in entries)


def in_our_words(rule: str, text: str) -> tuple[str, ...]:
    """Return the identifiers of our defects that a message of ncu may stand for; empty if it names no cause."""
    return next((found for name, said, found in _ncu_entries() if name.fullmatch(rule) and said.search(text)), ())


Estimates = tuple[tuple[tuple[str, ...], float], ...]


@cache
def ncu_estimates(half: str) -> dict[str, Estimates]:
    """Return ncu's messages that name a cause, by specimen with a details page, the largest estimate first.

    Each is what it may stand for, and the share of the time that ncu estimates it wins, 0 if it gives none.
    """
    files = sorted((CAPTURES / half).glob("full_details*.csv.xz"))
    if not files:
        return {}
    rules = load(files).rules
    rules = rules.assign(
        specimen=rules["path"].str.removeprefix("specimens/"), speedup=rules["speedup_pct"].fillna(0.0)
    )
    rules = rules[rules["type"].isin(("OPT", "WRN")) | rules["rule"].eq("SOLBottleneck")]
    found: dict[str, Estimates] = {}
    for name, own in rules.sort_values("speedup", ascending=False, kind="stable").groupby("specimen"):
        said = ((in_our_words(str(row.rule), str(row.text)), float(row.speedup) / 100) for row in own.itertuples())
        found[str(name)] = tuple(one for one in said if one[0])
    return found


@cache
def score_ncu(half: str) -> dict[str, tuple[str, ...]]:
    """Return what ncu's message with the largest estimate may stand for, by specimen with a details page."""
    return {name: said[0][0] if said else () for name, said in ncu_estimates(half).items()}


# -------------------------------------------------------------------------------------------------------------- figures


def figures(scores: Sequence[Score]) -> dict[str, tuple[int, int]]:
    """Return the figures of the answer key by name, as (count, total)."""
    slow = [one for one in scores if one.version == "slow"]
    clean = [one for one in scores if one.version == "clean"]
    sure = [one for one in scores if one.verdicts and one.verdicts[0].sure >= SURE]
    bounds = [(one.predicted, one.achieved) for one in slow if one.predicted and one.achieved]
    return {
        "first cause right": (sum(one.right for one in slow), len(slow)),
        "clean kernels with advice": (sum(not one.right and bool(one.first) for one in clean), len(clean)),
        "clean kernels right": (sum(one.right for one in clean), len(clean)),
        "sure and right": (sum(one.right for one in sure), len(sure)),
        "achieved within the bound": (sum(got <= SLACK * most for most, got in bounds), len(slow)),
        "bound near": (sum(abs(most / got - 1) <= NEAR for most, got in bounds), len(slow)),
    }


def mean_error(scores: Sequence[Score]) -> float:
    """Return the mean of |bound / achieved - 1| over the pairs whose cause was named."""
    errors = [abs(one.predicted / one.achieved - 1) for one in scores if one.predicted and one.achieved]
    return sum(errors) / len(errors) if errors else float("nan")


def _lines(half: str, each: bool) -> Iterator[str]:
    for tier in (FULL, DEFAULT):
        scores = score_kernels(half, tier)
        yield f"{half}, {tier} metrics"
        for what, (count, of) in figures(scores).items():
            yield f"  {what}: {count} of {of}"
        yield f"  mean error of the bounds: {mean_error(scores):.0%}"
        for one in scores if each else ():
            causes = ", ".join(f"{cause.defect} {cause.gain:.0%}" for cause in one.verdicts) or one.why or "abstains"
            speed = f", {one.achieved:.2f}x of {one.predicted or 0:.2f}x" if one.achieved else ""
            yield f"  {'ok  ' if one.right else 'MISS'} {one.specimen}: {causes}{speed} (roof {one.roof:.2f})"
    programs = score_timelines(half)
    yield f"{half}, timelines: {sum(one.right for one in programs)} of {len(programs)}"
    for program in programs if each else ():
        causes = ", ".join(f"{one.proposal.kind} {one.saves_frac.middle or 0:.0%}" for one in program.savers)
        told = f"{program.specimen}: {causes or 'abstains'}, {program.achieved:.2f}x"
        yield f"  {'ok  ' if program.right else 'MISS'} {told}"
    theirs = score_ncu(half)
    own = [one for one in score_kernels(half) if one.specimen in theirs]
    yield f"{half}, ncu's rules: {sum(one.answer in theirs[one.specimen] for one in own)} of {len(own)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's docstring."""
    parser = documented("python -m studies.specimens.score", __doc__)
    parser.add_argument("--half", choices=(*registry.SETS, "both"), default=registry.DEVELOPMENT)
    parser.add_argument("--each", action="store_true", help="a line for each specimen too")
    options: Any = parser.parse_args(arguments)
    for half in registry.HALVES if options.half == "both" else (options.half,):
        print("\n".join(_lines(half, options.each)))


if __name__ == "__main__":
    main()

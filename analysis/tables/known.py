"""Hold samples against launches of known bytes, which harness/known_bytes.cu and harness/known_links.py make."""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.samples.fit import FAINT_MOST
from analysis.tables.declare import Column, Facts, table
from analysis.tables.sampled import READ, WRITE, OfGpu

_KNOWN = re.compile(r"(?:^|/)known (read|copy|write|spin|peer|allreduce)(\d+)MiB(?=/|$)")
SENT, RECEIVED = "nvlink_tx_frac", "nvlink_rx_frac"
_MOVED_BY = {READ: ("read", "copy"), WRITE: ("write", "copy"), SENT: ("peer", "allreduce"), RECEIVED: ("allreduce",)}
_SAID = {READ: "read", WRITE: "written", SENT: "sent", RECEIVED: "received"}
_LINKS = 478.1e9  # byte/s each way: 18 links of 26.562 GB/s, as `nvidia-smi nvlink -s` says on an H100 and an H200
_HOW = ("alone", "among", "graph")


@table(
    "known_bytes",
    question="Do the samples give the bytes that each launch is known to move?",
    title="Known bytes",
    columns=(
        Column("how", "alone, among others in a stream or in a CUDA graph; or a whole step of these", "key"),
        Column("range", "what the launches do, in MiB; or which steps", "key"),
        Column("gpu", "number of the GPU", "key", "1", shown=False),
        Column(
            "metric",
            "read, written (of launches among others with what L2 kept before), or over NVLink sent or received",
            "key",
        ),
        Column("launches", "launches, or steps", "timing", "1"),
        Column("launch_ns", "mean time of one", "timing"),
        Column("known_bytes", "what one launch moves", "static"),
        Column("sampled_bytes", "what the samples say", "sampled"),
        Column("error_bytes", "half of its 95 % interval", "sampled"),
        Column("off_frac", "sampled over known, minus 1; blank where nothing is moved", "sampled"),
        Column("inside", "whether the interval holds the known bytes", "sampled"),
    ),
)
def build_known_bytes(facts: Facts) -> pd.DataFrame | None:
    """Return known_bytes.csv: one row for each kind of launch or step and each metric; None for another program."""
    rows = [row for one in _sampled(facts) for row in (*_launches(one), *_steps(one))]
    return pd.DataFrame(rows) if rows else None


def _sampled(facts: Facts) -> list[OfGpu]:
    """Return the sampled GPUs of a program with launches of known bytes; [] of another program."""
    return facts.sampled if any(_KNOWN.search(str(path)) for path in set(facts.ranges["path"].tolist())) else []


@table(
    "known_windows",
    question="Do all samples of a window together give all bytes that it is known to move?",
    title="Known bytes of windows",
    columns=(
        Column("window", "launches of one kind alone, or all steps among others in a stream or a graph", "key"),
        Column("gpu", "number of the GPU", "key", "1", shown=False),
        Column("metric", "read, written, or over NVLink sent or received", "key"),
        Column("samples", "samples from the first launch to the end of the last", "sampled", "1"),
        Column("known_bytes", "what all launches move", "static"),
        Column("sampled_low_bytes", "sum of the samples, with nothing where nsys prints 1 %", "sampled"),
        Column("sampled_high_bytes", "the same with 1.5 %, the most that it prints so", "sampled"),
        Column("off_low_frac", "the first over known, minus 1", "sampled"),
        Column("off_high_frac", "the second over known, minus 1", "sampled"),
    ),
)
def build_known_windows(facts: Facts) -> pd.DataFrame | None:
    """Return known_windows.csv: a row for each window and each metric that it moves; None for another program."""
    rows = [row for one in _sampled(facts) for row in _windows(one)]
    return pd.DataFrame(rows) if rows else None


def _windows(one: OfGpu) -> Iterator[dict[str, object]]:
    launches, begin = one.found.launches, one.found.samples.begin + one.found.clock.offset
    members: dict[str, list[tuple[int, str, int]]] = {}  # group, kind, bytes of one launch
    for group, path in enumerate(one.groups["folded"].astype(str)):
        if found := _KNOWN.search(path):
            kind, alone = found[1], _how(path) == _HOW[0]
            name = f"alone, {kind}" if alone else path.partition("/")[0]
            members.setdefault(name, []).append((group, kind, int(found[2]) << 20))
    for name, groups in members.items():
        own = np.isin(launches.group, [group for group, *_ in groups])
        first, last = launches.start[own].min() - one.found.samples.period, launches.end[own].max()
        rows = (begin >= first) & (begin <= last)
        for metric, moving in _MOVED_BY.items():
            known = sum(size * int(one.groups["launches"].iloc[at]) for at, kind, size in groups if kind in moving)
            if known and metric in one.found.values:
                yield {"window": name, "gpu": one.found.gpu, "metric": _SAID[metric], **_sums(one, metric, rows, known)}


def _sums(one: OfGpu, metric: str, rows: npt.NDArray[np.bool_], known: int) -> dict[str, object]:
    values = one.found.values[metric][rows]
    faint = one.found.faint(metric)[rows]
    of_one = _peak(one, metric) * one.found.samples.period / 1e9
    low, high = (float(np.where(faint, least, values).sum()) * of_one for least in (0.0, FAINT_MOST))
    return {
        "samples": int(rows.sum()), "known_bytes": known, "sampled_low_bytes": low, "sampled_high_bytes": high,
        "off_low_frac": low / known - 1, "off_high_frac": high / known - 1, "tier": "sampled",
    }  # fmt: skip


def _peak(one: OfGpu, metric: str) -> float:
    return _LINKS if metric in (SENT, RECEIVED) else one.peak


def _launches(one: OfGpu) -> Iterator[dict[str, object]]:
    """Yield the rows of single kinds of launches; written bytes only where nothing runs before."""
    for group, path in enumerate(one.groups["folded"].astype(str)):
        if found := _KNOWN.search(path):
            metrics: tuple[str, ...] = (READ, WRITE) if _how(path) == _HOW[0] else (READ,)
            if found[1] in _MOVED_BY[SENT]:
                metrics = tuple(name for name, kinds in _MOVED_BY.items() if found[1] in kinds)
            yield from _rows(one, [group], _how(path), f"{found[1]} {found[2]} MiB", metrics)


def _steps(one: OfGpu) -> Iterator[dict[str, object]]:
    """Yield the rows of whole steps: what L2 writes late lies inside, but for the last step."""
    inside: dict[str, list[int]] = {}
    for group, path in enumerate(one.groups["folded"].astype(str)):
        if _KNOWN.search(path) and _how(path) != _HOW[0]:
            inside.setdefault(path.rpartition("/")[0], []).append(group)
    for path, members in inside.items():
        yield from _rows(one, members, f"{_how(path)}, step", path.partition("/")[0], (READ, WRITE))


def _how(path: str) -> str:
    return next((word for word in _HOW if path.startswith(word)), "")


def _rows(
    one: OfGpu, members: list[int], how: str, name: str, metrics: tuple[str, ...]
) -> Iterator[dict[str, object]]:  # fmt: skip
    """Yield a row for each metric of some groups; of a step, a launch is one of each kind."""
    groups = one.groups.iloc[members]
    launches = groups["launches"].to_numpy(np.int64)
    least, time = int(launches.min()), float(one.found.time[members].sum())
    kinds = [found.groups() for path in groups["folded"] if (found := _KNOWN.search(str(path)))]
    for metric in metrics:
        figure = one.found.figure(metric, members)
        if figure is None:
            continue
        moved = sum(
            int(size) * 2**20 * int(count)
            for (kind, size), count in zip(kinds, launches, strict=True)
            if kind in _MOVED_BY[metric]
        )
        known, of_one = moved / least, _peak(one, metric) * time / least / 1e9
        sampled, error = figure.rate * of_one, figure.half * of_one
        yield {
            "how": how, "range": name, "gpu": one.found.gpu, "metric": _SAID[metric], "launches": least,
            "launch_ns": time / least, "known_bytes": known, "sampled_bytes": sampled, "error_bytes": error,
            "off_frac": sampled / known - 1 if known else pd.NA,
            "inside": "yes" if abs(sampled - known) <= error else "no", "tier": "sampled",
        }  # fmt: skip

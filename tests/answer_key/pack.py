"""Pack what measure.py wrote into a set: captures.tar.xz, which holds all its programs, and times.json.xz.

    python tests/answer_key/pack.py RESULTS SET --gpu h100

RESULTS is measure.py's --out. The archive has NAME-GPU/FORM/cuda_gpu_trace.csv and the other tables, bare_ranges.csv and
a trimmed trace.json where there are some. Paths and names of the machine are removed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import operator
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from analysis.formats import packed  # noqa: E402
from harness.profile.scrub import without_paths  # noqa: E402
from tests.answer_key import columns  # noqa: E402
from tests.answer_key.columns import Columns, Tables  # noqa: E402

ARCHIVE, TIMES = "captures.tar.xz", "times.json.xz"
TEXT = "text"  # the only column of a file that is no table
KERNELS, CALLS, LAUNCHES = "cuda_gpu_trace.csv", "cuda_api_trace.csv", "cuda_kern_exec_trace.csv"
TIMES_OF_NSYS = {"Start (ns)": "start", "Duration (ns)": "end"}
KEPT_OF_TRACE = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s"}
KEPT_ARGS = {
    "stream",
    "correlation",
    "device",
    "grid",
    "block",
    "bytes",
    "External id",
    "Ev Idx",
    "External ID",
    "kind",
}


def trimmed(text: str) -> str:
    """Return a trace of torch.profiler with the fields that a reader of timelines uses."""
    trace = json.loads(text)
    events = []
    for event in trace["traceEvents"]:
        kept = {key: value for key, value in event.items() if key in KEPT_OF_TRACE}
        if "args" in kept and event.get("ph") != "M":
            kept["args"] = {key: value for key, value in kept["args"].items() if key in KEPT_ARGS}
        events.append(kept)
    trace["traceEvents"] = events
    for private in ("traceName", "hostName", "record_shapes"):
        trace.pop(private, None)
    return json.dumps(trace, separators=(",", ":"))


def files(program: Path) -> Iterator[tuple[str, str]]:
    """Yield (name in the archive, text) of a program's results."""
    for form in sorted(path for path in program.iterdir() if path.is_dir() and len(path.name) == 1):
        for path in sorted([*form.glob("*.csv"), *form.glob("bare/captures/bare_ranges.csv")]):
            text = path.read_text(encoding="utf-8", errors="replace")
            if text.count("\n") > 1:
                lines = text.splitlines(keepends=True)
                yield f"{form.name}/{path.name.removeprefix('nsys_')}", "".join(map(without_paths, lines))
    if (program / "trace.json").exists():
        yield "a/trace.json", without_paths(trimmed((program / "trace.json").read_text(encoding="utf-8")))


def _cell(text: str) -> int | str:
    return int(text) if text.isdecimal() and str(int(text)) == text else text


def table(text: str) -> Columns:
    """Return a table as the archive holds it: calls of a thread together, and times by the names of `columns`."""
    heads, *lines = csv.reader(io.StringIO(text))
    found = {head: list(map(_cell, cells)) for head, *cells in zip(heads, *lines, strict=True)}
    if TIMES_OF_NSYS.keys() <= found.keys() and "" not in found["Duration (ns)"]:
        start, given = found["Start (ns)"], list(range(len(lines)))
        by_thread = sorted(given, key=found.get("Tid", given).__getitem__)
        order = by_thread if sorted(by_thread, key=start.__getitem__) == given else given  # two start at once
        found["Duration (ns)"] = list(map(operator.add, start, found["Duration (ns)"]))
        found = {TIMES_OF_NSYS.get(head, head): [cells[at] for at in order] for head, cells in found.items()}
    return found


def exported(found: Columns) -> Columns:
    """Return a table of the archive as nsys exports it."""
    found = {head: cells for head, cells in found.items() if cells.count(None) < len(cells)}
    if "end" in found:
        order = sorted(range(len(found["start"])), key=found["start"].__getitem__)
        found["end"] = list(map(operator.sub, found["end"], found["start"]))
        names = {name: head for head, name in TIMES_OF_NSYS.items()}
        found = {names.get(head, head): [cells[at] for at in order] for head, cells in found.items()}
    return found


def _rows(found: Columns) -> list[dict[str, Any]]:
    return [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]


def _launch(kernel: dict[str, Any], call: dict[str, Any], queued: int) -> dict[str, Any]:
    """Return the row of cuda_kern_exec_trace of a kernel and its call."""
    called, started = call["Start (ns)"], kernel["Start (ns)"]
    returned, ended = called + call["Duration (ns)"], started + kernel["Duration (ns)"]
    grid, block = (" ".join(f"{kernel[f'{what}{axis}']:>4}" for axis in "XYZ") for what in ("Grd", "Blk"))
    return {
        "API Start (ns)": called,
        "API Dur (ns)": call["Duration (ns)"],
        "Queue Start (ns)": returned if queued else "",
        "Queue Dur (ns)": started - returned if queued else "",
        "Kernel Start (ns)": started,
        "Kernel Dur (ns)": kernel["Duration (ns)"],
        "Total Dur (ns)": max(returned, ended) - called,
        "PID": call["Pid"],
        "TID": call["Tid"],
        "DevId": int(kernel["Device"].rpartition("(")[2].rstrip(")")),
        "API Function": call["Name"],
        "GridXYZ": grid,
        "BlockXYZ": block,
        "Kernel Name": kernel["Name"],
    }


def launches(kernels: Columns, calls: Columns, pairs: Columns) -> Columns:
    """Return cuda_kern_exec_trace, of which the archive names kernels and their calls by their rows."""
    of_kernel, of_call = _rows(exported(kernels)), _rows(exported(calls))
    found = [_launch(of_kernel[one["kernel"]], of_call[one["call"]], one["queued"]) for one in _rows(pairs)]
    return {head: [row[head] for row in found] for head in found[0]}


def paired(kernels: Columns, calls: Columns, found: Columns) -> Columns:
    """Return the pairs of which `launches` makes a table, or the table if they do not."""
    kernel = {
        (one["Start (ns)"], one["Duration (ns)"], one["Name"]): at for at, one in enumerate(_rows(exported(kernels)))
    }
    call = {(one["Start (ns)"], one["Pid"], one["Tid"]): at for at, one in enumerate(_rows(exported(calls)))}
    pairs = {
        "kernel": [
            kernel.get((one["Kernel Start (ns)"], one["Kernel Dur (ns)"], one["Kernel Name"])) for one in _rows(found)
        ],
        "call": [call.get((one["API Start (ns)"], one["PID"], one["TID"])) for one in _rows(found)],
        "queued": [int(one != "") for one in found["Queue Start (ns)"]],
    }
    whole = None not in pairs["kernel"] + pairs["call"] and launches(kernels, calls, pairs) == found
    return pairs if whole else found


@lru_cache(maxsize=2)
def read(folder: Path) -> dict[str, Tables]:
    """Return the captures of a set: of each NAME-GPU its files."""
    return columns.read(folder / ARCHIVE)


def parts(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (file, text) of the captures NAME-GPU of a set."""
    files = read(folder)[name]
    for file, found in files.items():
        if TEXT in found:
            yield file, found[TEXT][0]
            continue
        if "kernel" in found:
            found = launches(*(files[f"{file[0]}/{table}"] for table in (KERNELS, CALLS)), found)
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(shown := exported(found))
        writer.writerows(zip(*shown.values(), strict=True))
        yield file, target.getvalue()


def packed_files(texts: Iterable[tuple[str, str]]) -> Tables:
    """Return files as the archive holds them."""
    found = {name: table(text) if name.endswith(".csv") else {TEXT: [text]} for name, text in texts}
    for name in [name for name in found if name.endswith(LAUNCHES)]:
        found[name] = paired(*(found[f"{name[0]}/{table}"] for table in (KERNELS, CALLS)), found[name])
    return found


def read_times(folder: Path) -> dict[str, Any]:
    """Return the times of a set."""
    return dict(json.loads(packed.read_bytes(folder / TIMES))) if (folder / TIMES).exists() else {}


def write_times(times: dict[str, Any], folder: Path) -> None:
    """Write the times of a set."""
    (folder / TIMES).write_bytes(lzma.compress(json.dumps(times, sort_keys=True).encode(), filters=columns.FILTERS))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("set")
    parser.add_argument("--gpu", required=True, choices=["h100", "h200"])
    options = parser.parse_args()
    folder = HERE / options.set
    times = read_times(folder)
    programs = sorted(path for path in (options.results / options.set).iterdir() if path.is_dir())
    for program in programs:
        if (program / "times.json").exists():
            found = json.loads((program / "times.json").read_text(encoding="utf-8"))
            rounded = {
                key: [round(one, 9) for one in value] if key != "block" else value for key, value in found.items()
            }
            times.setdefault(options.gpu, {})[program.name] = rounded
    write_times(times, folder)
    captured = [program for program in programs if (program / "a/nsys_cuda_gpu_trace.csv").exists()]
    captured = [program for program in captured if (program / "a/nsys_cuda_gpu_trace.csv").stat().st_size]
    found = {f"{program.name}-{options.gpu}": packed_files(files(program)) for program in captured}
    print(f"{columns.write(read(folder) | found, folder / ARCHIVE)} bytes, {', '.join(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

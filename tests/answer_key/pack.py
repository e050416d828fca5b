"""Pack what measure.py wrote into a set: captures.txt.xz, which holds all its programs, and times.json.xz.

    python tests/answer_key/pack.py RESULTS SET --gpu h100

RESULTS is measure.py's --out. The archive has NAME-GPU/FORM/cuda_gpu_trace.csv and the other tables, bare_ranges.csv and
a trimmed trace.json where there are some. Paths and names of the machine are removed. A table stands there by column, whole
numbers as differences, which xz packs a quarter smaller. Tables of one kind stand together.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from analysis.formats import packed  # noqa: E402
from harness.profile.scrub import without_paths  # noqa: E402

ARCHIVE, TIMES = "captures.txt.xz", "times.json.xz"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0}]
COLUMNS = " by column"  # behind the name of a table
Captures = dict[str, dict[str, str]]  # of each NAME-GPU its files, as the archive holds them
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


def by_column(text: str) -> str | None:
    """Return a table with a line for each column, if `by_row` gives the same text again."""
    rows = list(csv.reader(text.split("\n")[:-1]))
    if not rows or "\v" in text or any(len(row) != len(rows[0]) for row in rows):
        return None
    lines = []
    for head, *cells in zip(*rows, strict=True):
        numbers = [int(cell) if cell.isdecimal() else -1 for cell in cells]
        plain = "\v".join([head, *cells])
        apart = "\v".join([f"+{head}", *(str(b - a) for a, b in pairwise([0, *numbers]))])
        lines.append(
            min(plain, apart, key=lambda one: len(zlib.compress(one.encode()))) if min(numbers) >= 0 else plain
        )
    found = "\n".join(lines)
    return found if by_row(found) == text else None


def by_row(text: str) -> str:
    """Return the table that `by_column` gave."""
    columns = []
    for head, *cells in (line.split("\v") for line in text.split("\n")):
        columns.append([head[1:], *accumulate(map(int, cells))] if head.startswith("+") else [head, *cells])
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(zip(*columns, strict=True))
    return target.getvalue()


@lru_cache(maxsize=2)
def read(folder: Path) -> Captures:
    """Return the captures of a set."""
    found: Captures = {}
    if (archive := folder / ARCHIVE).exists():
        for part in lzma.decompress(archive.read_bytes()).decode().split("\f")[1:]:
            title, _, text = part.partition("\n")
            name, _, file = title.partition("/")
            found.setdefault(name, {})[file] = text
    return found


def parts(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (file, text) of the captures NAME-GPU of a set."""
    for file, text in read(folder)[name].items():
        yield file.removesuffix(COLUMNS), by_row(text) if file.endswith(COLUMNS) else text


def plain(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return files as the archive holds them."""
    found = {}
    for name, text in texts:
        columns = by_column(text) if name.endswith(".csv") and text else None
        found |= {name: text} if columns is None else {f"{name}{COLUMNS}": columns}
    return found


def write(captures: Captures, folder: Path) -> int:
    """Write the archive of a set, each file behind a line with a form feed and its name; return its size."""
    files = [(file.partition("/")[2], name, file, text) for name, of in captures.items() for file, text in of.items()]
    whole = "".join(f"\f{name}/{file}\n{text}" for _, name, file, text in sorted(files))
    return (folder / ARCHIVE).write_bytes(lzma.compress(whole.encode(), filters=FILTERS))


def read_times(folder: Path) -> dict[str, Any]:
    """Return the times of a set."""
    return dict(json.loads(packed.read_bytes(folder / TIMES))) if (folder / TIMES).exists() else {}


def write_times(times: dict[str, Any], folder: Path) -> None:
    """Write the times of a set."""
    (folder / TIMES).write_bytes(lzma.compress(json.dumps(times, sort_keys=True).encode(), filters=FILTERS))


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
    found = {f"{program.name}-{options.gpu}": plain(files(program)) for program in captured}
    print(f"{write(read(folder) | found, folder)} bytes, {', '.join(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

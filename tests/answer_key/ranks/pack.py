"""Pack the cut exports of run.py as text, a line for each column, and unpack them.

python tests/answer_key/ranks/pack.py FOLDER            adds each NAME.sqlite to captures.tar.xz, and writes times.json
python tests/answer_key/ranks/pack.py --unpack FOLDER   writes FOLDER/NAME.sqlite for each capture

To save room, times are rounded down, those of the host to 256 ns, those of the GPU to its 32 ns, and of a program with
thousands of collectives the first four steps are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import sqlite3
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).resolve().parent / "captures.tar.xz"
TIMES = CAPTURES.with_name("times.json")
PRIVATE = {"uuid", "busLocation", "pciBusId"}  # columns that tell which machine it was
TICK_NS, HOST_TICK_NS, HOST = 32, 256, {"CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"}
MANY, STEPS = 50_000, 4  # of an export with so many calls, only so many steps are kept
NAME = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"  # of a range


def text_of(export: Path) -> str:
    """Return the tables of an export as text. Rows of one process stand together.

    A start is kept as the time since the end before, an end as the time since the start, in ticks.
    """
    lines = []
    with contextlib.closing(sqlite3.connect(export)) as file:
        until = _until(file)
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for table in tables:
            names = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            order = [name for name in ("globalPid", "globalTid", "start") if name in names]
            sort = f" ORDER BY {', '.join(order)}" if order else ""
            kept = "1"
            if "start" in names:
                kept = f"start < {until}" + (f" OR {NAME} LIKE 'ncclComm%'" if "textId" in names else "")
            rows = file.execute(f"SELECT * FROM {table} WHERE {kept}{sort}").fetchall()
            columns = {name: [row[at] for row in rows] for at, name in enumerate(names) if name not in PRIVATE}
            tick = HOST_TICK_NS if table in HOST else TICK_NS
            lines.append(f"\f{table} {len(rows)} {tick}")
            if "end" in columns:
                columns["start"], columns["end"] = _gaps(columns["start"], columns["end"], tick)
            lines += [f"{name} {_packed(of)}" for name, of in columns.items()]
    return "\n".join(lines) + "\n"


def _until(file: sqlite3.Connection) -> float:
    """Return the start of the first step that is left out."""
    if file.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0] < MANY:
        return 1e18
    steps = file.execute(f"SELECT start, globalTid FROM NVTX_EVENTS WHERE {NAME} = 'step' ORDER BY start").fetchall()
    return float(steps[STEPS * len({thread for _, thread in steps})][0])


def _gaps(starts: list[int], ends: list[int | None], tick: int) -> tuple[list[int], list[int]]:
    """Return, in ticks, each start since the end before, and each end since its start, -1 where there is none."""
    begins = [start // tick for start in starts]
    spans = [-1 if end is None else end // tick - begin for begin, end in zip(begins, ends, strict=True)]
    before = [0, *(begin + max(span, 0) for begin, span in zip(begins, spans, strict=True))]
    return [begin - end for begin, end in zip(begins, before, strict=False)], spans


def _times(gaps: list[int], spans: list[int], tick: int) -> tuple[list[int], list[int | None]]:
    """Return starts and ends of `_gaps`, ns."""
    ends = [at * tick for at in accumulate(gap + max(span, 0) for gap, span in zip(gaps, spans, strict=True))]
    starts = [end - max(span, 0) * tick for end, span in zip(ends, spans, strict=True)]
    return starts, [end if span >= 0 else None for end, span in zip(ends, spans, strict=True)]


def _packed(values: list[Any]) -> str:
    if all(one is None for one in values):
        return "-"
    if all(isinstance(one, int) for one in values):
        steps = [values[0], *(b - a for a, b in pairwise(values))]
        return min("=" + " ".join(map(str, values)), "+" + " ".join(map(str, steps)), key=len)
    return json.dumps([one.hex() if isinstance(one, bytes) else one for one in values], separators=(",", ":"))


def _unpacked(text: str, count: int) -> list[Any]:
    if text == "-":
        return [None] * count
    if text[0] in "+=":
        numbers = map(int, text[1:].split())
        return list(accumulate(numbers) if text[0] == "+" else numbers)
    return json.loads(text)


def write_export(text: str, target: Path) -> None:
    """Write an export from its text."""
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as file:
        for block in text.split("\f")[1:]:
            head, *lines = block.splitlines()
            table, count, tick = head.split()
            columns = {name: _unpacked(rest, int(count)) for name, _, rest in (line.partition(" ") for line in lines)}
            if "end" in columns:
                columns["start"], columns["end"] = _times(columns["start"], columns["end"], int(tick))
            if "binaryData" in columns:
                columns["binaryData"] = [one and bytes.fromhex(one) for one in columns["binaryData"]]
            rows = list(zip(*columns.values(), strict=True))
            if "start" in columns:
                at = list(columns).index("start")
                rows.sort(key=lambda row: row[at])
            file.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            file.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        file.commit()


def texts() -> dict[str, str]:
    """Return the text of each packed capture."""
    if not CAPTURES.exists():
        return {}
    with tarfile.open(CAPTURES) as archive:
        return {one.name: archive.extractfile(one).read().decode("utf-8") for one in archive}  # type: ignore[union-attr]


def unpack(folder: Path) -> dict[str, Path]:
    """Write the export of each packed capture into a folder, and return its path by the name of the capture."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: folder / f"{name}.sqlite" for name in texts()}
    for name, text in texts().items():
        write_export(text, found[name])
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unpack", action="store_true")
    options = parser.parse_args()
    if options.unpack:
        unpack(options.folder)
        return 0
    packed = texts()
    paths = sorted(options.folder.rglob("*.[0-9].sqlite"))  # no whole session
    with ProcessPoolExecutor() as pool:
        packed |= zip((path.stem for path in paths), pool.map(text_of, paths), strict=True)
    with tarfile.open(CAPTURES, "w:xz", preset=9 | lzma.PRESET_EXTREME) as archive:
        for name, text in sorted(packed.items()):
            member = tarfile.TarInfo(name)
            member.size = len(text.encode("utf-8"))
            archive.addfile(member, io.BytesIO(text.encode("utf-8")))
    times: dict[str, Any] = json.loads(TIMES.read_text(encoding="utf-8")) if TIMES.exists() else {}
    for path in sorted(options.folder.rglob("times-*.json")):
        times |= json.loads(path.read_text(encoding="utf-8"))
    lines = [f"{json.dumps(name)}: {json.dumps(of)}" for name, of in sorted(times.items())]
    TIMES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

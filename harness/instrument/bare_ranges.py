"""Turn the records of bare_nvtx.c into captures/bare_ranges.csv, and write the program's outcome to captures/bare.json.

Both files may be published: the names of ranges lose absolute paths and the names of this machine and its user.
Processes and threads get numbers from 0 on.
"""

import argparse
import json
import lzma
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.formats.bare import AUTO_ON, AUTO_OWN, BARE_RANGES, PUSH, START
from analysis.formats.ranges import CALIBRATION, PREFIX, is_own
from analysis.formats.tools import TOOL_STATUS
from analysis.formats.words import count_of
from analysis.formats.writing import write_json
from harness.profile.scrub import without_paths
from harness.profile.status import TIMED_OUT, scrub, scrub_command

# The format of the file that bare_nvtx.c writes.
CHUNK, RECORD = 65536, 16
HEADER = struct.Struct("<8sIIIiiIQQ")
NAME = struct.Struct("<QQ")
THREAD_IS, PUSHED, POPPED, STARTED, ENDED, NAMES = range(1, 7)
EVENT = np.dtype([("time", "<u8"), ("value", "<u4"), ("domain_kind", "<u4")])

PACK_FROM = 1 << 20  # a larger table is written packed
UNNAMED = "(unnamed)"
Row = tuple[int, int | str, int, int, int | str, str, str]  # the fields of BareRange


@dataclass(frozen=True)
class Process:
    """The records of one process.

    events   a column for each event, sorted by thread and time; rows as `_events` returns them
    names    number -> name of a range or of a domain
    lost     events that were not recorded; `is_full`: recording ended before the program did
    """

    start_ns: int
    rank: int | None
    lost: int
    is_full: bool
    events: Any
    names: dict[int, str]


def read_process(path: Path) -> Process | None:
    """Return the records of one file; None if the process was killed before it wrote the header."""
    raw = path.read_bytes()
    if len(raw) < CHUNK or raw[:7] != b"KL-BARE":
        return None
    _, _, _, _, rank, local_rank, is_full, start_ns, lost = HEADER.unpack_from(raw)
    whole = len(raw) // CHUNK * CHUNK
    chunks = np.frombuffer(raw, EVENT, (whole - CHUNK) // RECORD, CHUNK).reshape(-1, CHUNK // RECORD)
    names: dict[int, str] = {}
    parts = []
    for number, chunk in enumerate(chunks, start=1):
        if chunk["domain_kind"][0] >> 24 == NAMES:
            names |= _names(raw[number * CHUNK : (number + 1) * CHUNK])
        else:
            parts.append((number * (CHUNK // RECORD), chunk))
    found = rank if rank >= 0 else local_rank
    return Process(start_ns, found if found >= 0 else None, lost, bool(is_full), _events(parts), names)


def _names(chunk: bytes) -> dict[int, str]:
    """Return number -> name of a chunk of names. The number 0 ends it: a name that was not finished has it, too."""
    found, at = {}, RECORD
    while at + NAME.size <= len(chunk):
        number, length = NAME.unpack_from(chunk, at)
        if not number:
            break
        at += NAME.size
        found[number] = chunk[at : at + length].decode("utf-8", errors="replace")
        at += length + -length % 8
    return found


def _events(parts: list[tuple[int, Any]]) -> Any:
    """Return int64 rows thread, time (ns), kind, domain, value, place in the file; columns sorted by thread, time."""
    kept = []
    for first, chunk in parts:
        empty = np.flatnonzero(chunk["domain_kind"] == 0)
        used = chunk[: empty[0]] if len(empty) else chunk
        if len(used):
            kept.append((first + np.arange(len(used)), used))
    if not kept:
        return np.zeros((6, 0), dtype=np.int64)
    place = np.concatenate([places for places, _ in kept])
    records = np.concatenate([used for _, used in kept])
    kind = (records["domain_kind"] >> 24).astype(np.int64)
    is_thread = kind == THREAD_IS  # every chunk begins with such a record
    thread = records["value"][np.maximum.accumulate(np.where(is_thread, np.arange(len(kind)), 0))].astype(np.int64)
    domain = (records["domain_kind"] & 0xFFFFFF).astype(np.int64)
    time, value = records["time"].astype(np.int64), records["value"].astype(np.int64)
    table = np.stack([thread, time, kind, domain, value, place])[:, ~is_thread]
    return table[:, np.lexsort((table[1], table[0]))]


def ranges_of(process: Process) -> Iterator[tuple[int, int, int | None, str, str]]:
    """Yield (thread, start in ns, end or None, style, name) of each range of a process, in the order of `events`."""
    stacks: dict[tuple[int, int], list[int]] = {}
    opened: list[list[Any]] = []
    by_place: dict[int, int] = {}
    named: dict[tuple[int, int], str] = {}
    for thread, time, kind, domain, value, place in process.events.T.tolist():
        if kind in (PUSHED, STARTED):
            key = domain, value
            if key not in named:
                named[key] = _shown(process.names.get(domain, ""), process.names.get(value, ""))
            if kind == PUSHED:
                stacks.setdefault((thread, domain), []).append(len(opened))
            else:
                by_place[place] = len(opened)
            opened.append([thread, time, None, PUSH if kind == PUSHED else START, named[key]])
        elif kind == POPPED and (stack := stacks.get((thread, domain))):  # NVTX allows a pop without an open range
            opened[stack.pop()][2] = time
    for _, time, _, _, value, _ in process.events.T[process.events[2] == ENDED].tolist():
        if value in by_place:  # sorted by thread: the end may stand before its start
            opened[by_place[value]][2] = time
    yield from map(tuple, opened)


def _shown(domain: str, name: str) -> str:
    """Return `name` or `domain:name`, on one line, without absolute paths and names of machine and user."""
    text = "".join(sign if sign.isprintable() else " " for sign in (f"{domain}:{name}" if domain else name))
    return scrub(without_paths(text)).strip() or UNNAMED


def rows_of(processes: Iterable[Process]) -> Iterator[Row]:
    """Yield the rows of bare_ranges.csv, with times in ns since the first event of the run."""
    ordered = sorted(processes, key=lambda one: one.start_ns)
    first = min((int(one.events[1].min()) for one in ordered if one.events.size), default=0)
    for number, process in enumerate(ordered):
        threads: dict[int, int] = {}
        found = sorted(ranges_of(process), key=lambda one: one[1])
        for tid, *_ in found:
            threads.setdefault(tid, len(threads))
        found.sort(key=lambda one: threads[one[0]])
        rank = "" if process.rank is None else process.rank
        for tid, start, end, style, name in found:
            yield number, rank, threads[tid], start - first, "" if end is None else end - first, style, name


def automatic(rows: list[Row], cost_ns: float) -> tuple[list[Row], str]:
    """Return the rows to keep, and AUTO_ON, AUTO_OWN or "".

    "": there are no automatic ranges. AUTO_OWN: the program opens ranges itself, so the automatic ones are dropped.
    AUTO_ON: the automatic ranges stay, and their cost is subtracted; each range also loses the cost of those inside it.
    """
    others = [row for row in rows if not row[6].startswith(PREFIX)]
    if len(others) == len(rows):
        return rows, ""
    if any(is_own(row[6]) for row in others):
        return others, AUTO_OWN
    return _without_cost([row for row in rows if row[6] != f"{PREFIX}{CALIBRATION}"], cost_ns), AUTO_ON


def _without_cost(rows: list[Row], cost_ns: float) -> list[Row]:
    """Subtract from every time half of the cost for each earlier start or end of an automatic range on its thread."""
    events: dict[tuple[int, int], list[int]] = defaultdict(list)
    for process, _, thread, start, end, _, name in rows:
        if name.startswith(PREFIX):
            events[process, thread] += [start] if end == "" else [start, int(end)]
    before = {thread: np.sort(np.array(times)) for thread, times in events.items()}

    def moved(thread: tuple[int, int], time: int) -> int:
        passed = int(np.searchsorted(before[thread], time)) if thread in before else 0
        return max(time - round(cost_ns / 2 * passed), 0)

    found: list[Row] = []
    for process, rank, tid, start, end, style, name in rows:
        place = process, tid
        closed = "" if end == "" else moved(place, int(end))
        found.append((process, rank, tid, moved(place, start), closed, style, name.removeprefix(PREFIX)))
    return found


def cost_of(folder: Path) -> float | None:
    """Return the highest cost of an automatic range that a process measured, in ns; None without a measurement."""
    found = [json.loads(path.read_text(encoding="utf-8"))["cost_ns"] for path in folder.glob("cost-*.json")]
    return max(found, default=None)


def save(rows: list[Row], captures: Path) -> None:
    """Write bare_ranges.csv, packed above 1 MB. The file appears whole or not at all."""
    plain, packed = captures / BARE_RANGES.name, captures / f"{BARE_RANGES.name}.xz"
    text = BARE_RANGES.text(rows).encode()
    target, other = (packed, plain) if len(text) > PACK_FROM else (plain, packed)
    partial = target.with_name(f"{target.name}.partial")
    partial.write_bytes(lzma.compress(text, preset=1) if target is packed else text)
    partial.replace(target)
    other.unlink(missing_ok=True)


def judge(exit_code: int, limit: str, ranges: int, processes: list[Process]) -> tuple[str, str, str]:
    """Return (status, reason, fix) of a run. `limit`: "" if the run did not reach it."""
    if exit_code == TIMED_OUT and limit:
        kept = f"The program was ended after {limit} s, its limit; the ranges that it had recorded are kept."
        return "failed", kept, "Let it do less, or raise --limit."
    if exit_code:
        by = f"was killed by signal {exit_code - 128}" if exit_code > 128 else f"ended with exit code {exit_code}"
        return (
            "failed",
            f"The program {by}; the ranges that it had recorded are kept.",
            "Run the program by itself first.",
        )
    if lost := sum(one.lost for one in processes):
        reason = (
            f"There was no room for {count_of(lost, 'event')} of ranges: the disk is full, or a file would pass 1 GiB."
        )
        return "failed", reason, "Make room on the disk, or let the program do less."
    if not ranges:
        fix = "Put NVTX ranges around its steps and layers, for example with torch.cuda.nvtx.range or nvtx.annotate."
        return "failed", "The program opened no NVTX range, so no step has a bare time.", fix
    return "ok", "", ""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, for bare.sh. Return 1 unless the status is `ok`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument("--unbuilt", nargs=2, metavar=("REASON", "FIX"), help="the library could not be built")
    parser.add_argument("--status", choices=["missing", "failed"], default="failed", help="with --unbuilt")
    parser.add_argument("--version", default=None, help="of the library")
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--limit", default="")
    parser.add_argument("command", nargs="+", help="the command that was run, after --")
    options = parser.parse_args(arguments)
    captures = options.out / "captures"
    rows: list[Row] = []
    auto, cost = "", None
    try:
        captures.mkdir(parents=True, exist_ok=True)
        if options.unbuilt:
            verdict = (options.status, *options.unbuilt)
        else:
            files = sorted((options.out / "raw" / "bare").glob("*.bare"))
            processes = [one for path in files if (one := read_process(path))]
            cost = cost_of(options.out / "raw" / "ranges")
            rows, auto = automatic(list(rows_of(processes)), cost or 0.0)
            if rows:
                save(rows, captures)
            reached = options.limit if options.limit and options.seconds + 1 >= int(options.limit) else ""
            verdict = judge(options.exit_code, reached, len(rows), processes)
        values = {
            "tool": "bare",
            "version": options.version,
            "status": verdict[0],
            "reason": scrub(verdict[1]),
            "fix": verdict[2],
            "command": scrub_command(options.command),
            "seconds": options.seconds,
            "exit_code": options.exit_code,
            "ranges": len(rows),
        }
        if auto:
            values |= {"auto_ranges": auto, "range_cost_ns": cost}
        write_json(captures / "bare.json", TOOL_STATUS.document(values))
    except OSError as error:
        print(
            f"bare failed: {error.strerror} while writing to {captures.name}/; make room and run it again.",
            file=sys.stderr,
        )
        return 1
    if rows:
        never = sum(row[4] == "" for row in rows)
        told = f", of which {count_of(never, 'range')} never closed" if never else ""
        processes_seen = count_of(len({row[0] for row in rows}), "process", "processes")
        print(f"{count_of(len(rows), 'NVTX range')} of {processes_seen}{told}")
    if verdict[0] != "ok":
        print(f"bare {verdict[0]}: {values['reason']} {verdict[2]}", file=sys.stderr)
    return 0 if verdict[0] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())

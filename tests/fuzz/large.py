"""Damage large files of every format, and hold the readers to 2 s of processor time for 10 MB, and to 1.5 GB.

    python -m tests.fuzz.large --megabytes 10 [--only "nsys trace" torch]

Each file is a seed (seeds.py) with its rows many times, each time with other numbers. Each input is read in a fork of its
own, which is ended at the limit. Exit code 1 if a reader breaks a limit, raises what is no LedgerError, or refuses an undamaged file of
a seed that is one.
"""

import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from analysis.capture.load import load
from analysis.formats import system
from analysis.formats.errors import LedgerError
from tests.bench.make_captures import make_program, write_sqlite
from tests.fuzz.oracle import BrokenPromiseError, check_message
from tests.fuzz.seeds import Seed, seeds

SECONDS_OF_10_MB = 2.0
MEMORY_BYTES = 3 << 29
START_SECONDS = 0.5  # for a file of any size; 0.25 until a slow virtual machine took 0.6 s for 1 MB
WORK_SECONDS = 0.1  # that machine's time for `_work`, of a processor; on a slower one the limits are longer
WHOLE, READ, REFUSED, SLOW = "whole", "read", "refused: ", "more than"
_HEADER = re.compile(r"\((?:ns|MB)\)|Average")
LAUNCH_BYTES = 115  # of a launch with its ranges and calls in SQLite


class Read(NamedTuple):
    """What reading a file took, of a processor and by the clock, and what became of it: READ, REFUSED, or what is wrong."""

    seconds: float
    wall: float
    peak_bytes: int
    result: str


def _moved(text: str, by: int) -> str:
    """Return a text with greater numbers, of those that are no small ones."""
    return re.sub(r"(?<![\w.])[0-9]{3,15}(?![\w.])", lambda found: str(int(found[0]) + by), text)


def _more_rows(text: str, size: int) -> str:
    """Return a text whose rows come again and again until it has `size` characters.

    Rows stand below the last header, or below ncu's header and units, which the lines of a program may precede; each
    launch of ncu has another ID. In the sums of nsys, each row is of another name and has so small a share that it is 0.
    """
    if (head := text.find('"ID","Process ID"')) >= 0 and (found := re.search(r'(^"[0-9]+",.*\n)+', text[head:], re.M)):
        rows = found[0].splitlines(keepends=True)
        count = max(size // len(found[0]), 1)
        many = (row.partition(",")[2] for _ in range(count) for row in rows)
        many_rows = "".join(f'"{number}",{rest}' for number, rest in enumerate(many))
        return text[: head + found.start()] + many_rows + text[head + found.end() :]
    lines = text.rstrip("\n").split("\n")
    top = max((at for at, line in enumerate(lines) if _HEADER.search(line)), default=0)
    top += lines[top + 1 : top + 2] != [] and lines[top + 1].startswith(" ---")
    before, rest = "\n".join(lines[: top + 1]) + "\n", "\n".join(lines[top + 1 :]) + "\n"
    if not rest.strip():
        return text
    copies = max(size // len(rest), 1)
    if "StdDev" not in before and "Instances" not in before:
        within = 10 if "  ---" in rest else copies  # of ncu's console, so that numbers stay as wide as their column
        return before + "".join(_numbered(_moved(rest, at % within), 5 * at) for at in range(copies))
    row = lines[top + 1 if "---" in before else -1].rstrip()
    if "%" in lines[top] or "---" in before:
        row = re.sub(
            "[0-9]+([.,])[0-9]+", lambda share: f"0{share[1]}0".rjust(len(share[0]) * ("---" in before)), row, count=1
        )
        rest = ""
    return before + rest + "".join(f"{row}{at}\n" for at in range(size // len(row)))


def _numbered(rows: str, by: int) -> str:
    """Return rows of ranges with greater RangeIds."""
    return re.sub(r",([0-9]+),,:\1,", lambda found: f",{int(found[1]) + by},,:{int(found[1]) + by},", rows)


def _more_items(text: str, size: int) -> str:
    """Return a JSON text whose longest lists have their items again and again until it has `size` characters."""
    tree = json.loads(text)
    lists = [node for node in _nodes(tree) if isinstance(node, list) and node]
    if not lists:
        return text
    longest = max(lists, key=lambda node: len(json.dumps(node)))
    items = json.dumps(longest)[1:-1]
    copies = max(size // len(items), 1)
    longest[:] = ["@"]
    more = ", ".join(_moved(items, at) for at in range(copies))
    return json.dumps(tree).replace('"@"', more, 1)


def _nodes(tree: object) -> list[object]:
    found = [tree]
    for node in found:
        if isinstance(node, dict | list):
            found += node.values() if isinstance(node, dict) else node
    return found


def grown(seed: Seed, size: int) -> bytes:
    """Return a file like a seed, of about `size` bytes."""
    if seed.form == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.sqlite"
            write_sqlite(make_program(max(size // LAUNCH_BYTES, 100)), path)
            return path.read_bytes()
    if seed.form == "gzip":
        return gzip.compress(_more_items(gzip.decompress(seed.data).decode(), size).encode(), 1)
    if seed.form == "json":
        return _more_items(seed.data.decode(), size).encode()
    if seed.form == "binary":
        return seed.data * (size // len(seed.data))
    return _more_rows(seed.data.decode(), size).encode()


def _sown(data: bytes, what: bytes, rng: random.Random) -> bytes:
    """Return the bytes with `what` put in every 5,000 to 10,000 bytes."""
    parts, at = [], 0
    while at < len(data):
        end = at + rng.randrange(5_000, 10_000)
        parts += [data[at:end], what]
        at = end
    return b"".join(parts)


def _pages(data: bytes, rng: random.Random, new: Callable[[bytes], bytes]) -> bytes:
    """Return the bytes with one page of a hundred changed."""
    raw = bytearray(data)
    for at in range(4096, len(raw) - 4096, 4096):
        if rng.random() < 0.01:
            raw[at : at + 4096] = new(bytes(raw[at : at + 4096]))
    return bytes(raw)


Damage = Callable[[bytes, random.Random], bytes]
ANY: dict[str, Damage] = {
    WHOLE: lambda data, rng: data,
    "cut": lambda data, rng: data[: len(data) * 2 // 3],
    "zeros instead of the rest": lambda data, rng: data[: len(data) // 2] + bytes(len(data) // 2),
    "a byte of 5,000 is another": lambda data, rng: _sown(data, b"\xff", rng),
}
TEXT: dict[str, Damage] = {
    "a quote near the start": lambda data, rng: data[: len(data) // 50] + b'"' + data[len(data) // 50 :],
    "a quote every 5,000 bytes": lambda data, rng: _sown(data, b'"', rng),
    "no quotes": lambda data, rng: data.replace(b'"', b""),
    "semicolons for commas": lambda data, rng: data.replace(b",", b";"),
    "a comma every 5,000 bytes": lambda data, rng: _sown(data, b",", rng),
    "no line ends": lambda data, rng: data.replace(b"\n", b" "),
    "empty lines between": lambda data, rng: data.replace(b"\n", b"\n\n"),
    "a line of a log every 5,000 bytes": lambda data, rng: _sown(data, b"\n==PROF== 3 done\n", rng),
    "no header": lambda data, rng: data.partition(b"\n")[2],
    "the header every 5,000 bytes": lambda data, rng: _sown(data, b"\n" + data.partition(b"\n")[0][:1000] + b"\n", rng),
    "numbers of another locale": lambda data, rng: re.sub(rb"([0-9])\.([0-9])", rb"\1,\2", data),
    "no numbers": lambda data, rng: re.sub(rb"[0-9]", b"x", data),
    "a very long number": lambda data, rng: data[: len(data) // 2] + b"1" * (len(data) // 4) + data[len(data) // 2 :],
    "UTF-16": lambda data, rng: data.decode(errors="replace").encode("utf-16"),
    "brackets": lambda data, rng: data[: len(data) // 2] + b"[" * (len(data) // 4) + data[len(data) // 2 :],
}
OF_FORM: dict[str, dict[str, Damage]] = {
    "sqlite": {
        "pages of zeros": lambda data, rng: _pages(data, rng, lambda page: bytes(4096)),
        "pages of another kind": lambda data, rng: _pages(data, rng, lambda page: b"\x05" + page[1:]),
        "numbers in pages": lambda data, rng: _pages(data, rng, lambda page: rng.randbytes(4096)),
        "other names": lambda data, rng: data.replace(b"vectorized", b"\xff\x00\x01\x02\x03\x04\x05\x06\x07\x08"),
    },
    "gzip": {"the start of another": lambda data, rng: data[:1000] + rng.randbytes(1000) + data[2000:]},
    "binary": {},
}


_TEXT = json.dumps([{"name": f"kernel_{at}", "times": [at, at + 0.5]} for at in range(20_000)])


def _work() -> None:
    """Do what readers do: parse a text, search it, and turn words into numbers."""
    json.loads(_TEXT)
    re.findall(r'"name": "kernel_([0-9]+)7"', _TEXT)
    [float(one) for one in re.split(r"[^0-9.]+", _TEXT)[1:-1]]


def slowness() -> float:
    """Return how many times as long as on the machine of the limits a fixed work takes here and now, at least 1."""
    start = time.process_time()
    _work()
    return max((time.process_time() - start) / WORK_SECONDS, 1.0)


def read(data: bytes, folder: Path, partner: bytes = b"", slow: float = 1.0) -> Read:
    """Read a file in a fork of this process. `partner`: a capture beside it, for a file that is none by itself."""
    size = len(data)
    limit = (START_SECONDS + SECONDS_OF_10_MB * size / 1e7) * slow
    (folder / "f.dat").write_bytes(data)
    (folder / "partner.csv").write_bytes(partner)
    heard, said = os.pipe()
    start = time.perf_counter()
    pid = os.fork()
    if not pid:
        _read(said, int(3 * limit) + 1, folder, bool(partner))
    os.close(said)
    with os.fdopen(heard) as stream:
        result = stream.read()
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    if status:
        result = f"ended with {status}"
    elif seconds > limit:
        result = f"{SLOW} {limit:.1f} s"
    elif peak > MEMORY_BYTES:
        result = f"{MEMORY_BYTES >> 20} MB are too few"
    return Read(seconds, wall, peak, result)


def _least_of_3(data: bytes, folder: Path, partner: bytes) -> Read:
    """Read a file, again while that is too slow for this machine: a slow reader delays all three."""
    slow = 1.0
    for _ in range(3):
        one = read(data, folder, partner, slow)
        if not one.result.startswith(SLOW):
            break
        slow = slowness()
    return one


def _read(said: int, seconds: int, folder: Path, has_partner: bool) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        system.limit_memory(MEMORY_BYTES)
        os.chdir(folder)
        result = READ
        try:
            load([Path("f.dat"), *([Path("partner.csv")] if has_partner else [])])
        except LedgerError as error:
            result = REFUSED + str(error)
            check_message(error, "f.dat", str(folder))
        except BaseException as error:
            result = "".join(traceback.format_exception(error)[-2:])
    except BrokenPromiseError as error:
        result = str(error)
    os.write(said, result.encode(errors="replace")[:4000])
    os._exit(0)


def damages(form: str) -> dict[str, Damage]:
    """Return the damages of a format."""
    return ANY | OF_FORM.get(form, TEXT)


def formats(only: list[str]) -> list[Seed]:
    """Return a seed of each format: of the eras of SQLite one."""
    found = {("sqlite" if one.form == "sqlite" else one.name): one for one in seeds()}
    return [one for name, one in found.items() if not only or name in only]


def try_format(given: tuple[Seed, float, int]) -> tuple[str, int, int]:
    """Read a large file of a format with each damage; return what to print, how many were read, and how many broke."""
    seed, megabytes, number = given
    whole = grown(seed, int(megabytes * 1e6))
    partner = next(one for one in seeds() if one.name == "ncu raw").data if seed.form in ("csv", "json") else b""
    done: dict[str, Read] = {}
    said: list[str] = []
    broken = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        (Path(folder) / "seed.dat").write_bytes(seed.data)
        with contextlib.suppress(LedgerError):
            load([Path(folder) / "seed.dat"])  # here, so that no fork has to import what it needs
        for what, damage in damages(seed.form).items():
            data = damage(whole, random.Random(f"{number} {seed.name} {what}"))
            one = done[what] = _least_of_3(data, Path(folder), partner)
            refused = one.result.startswith(REFUSED)
            if not (one.result == READ or (refused and (what != WHOLE or not seed.truth))):
                broken += 1
                said.append(
                    f"BROKEN {seed.name}, {what}, {len(data) / 1e6:.1f} MB: {one.seconds:.2f} s of a processor, "
                    f"{one.wall:.2f} s by the clock, {one.result}"
                )
    count = sum(one.result == READ for one in done.values())
    slowest = max(done, key=lambda what: done[what].seconds)
    said.append(
        f"{seed.name}, {len(whole) / 1e6:.1f} MB: whole {done[WHOLE].seconds:.2f} s ({done[WHOLE].result.split(':')[0]}), "
        f"at most {done[slowest].seconds:.2f} s of a processor, {done[slowest].wall:.2f} s by the clock ({slowest}), "
        f"{max(one.peak_bytes for one in done.values()) >> 20} MB; {count} of {len(done)} read, the others refused"
    )
    return "\n".join(said), len(done), broken


def main() -> int:
    """Read each file with each damage, and print what each format took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", default=[], metavar="SEED")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="formats at a time")
    options = parser.parse_args()
    tasks = [(one, options.megabytes, options.seed) for one in formats(options.only)]
    count = broken = 0
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        for said, tried, wrong in pool.imap_unordered(try_format, tasks, 1):
            count, broken = count + tried, broken + wrong
            print(said, flush=True)
    print(f"{count} files, {broken} broke a limit or were not read whole")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

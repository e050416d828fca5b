"""Damage large files of every format, and hold the readers to 2 s of processor time for 10 MB, and to 1.5 GB.

python -m tests.fuzz.large --megabytes 10 [--only "nsys trace" torch]

Each file is a seed (seeds.py) with its rows many times, each time with other numbers. Each input is read in a fork of its
own, which is ended at the limit. Exit code 1 if a reader breaks a limit, or raises what is no LedgerError.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import resource
import sys
import tempfile
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
START_SECONDS = 1.0  # for a file of any size: a sentence about it, imports of a format
LAUNCH_BYTES = 115  # of a launch with its ranges and calls in SQLite


class Read(NamedTuple):
    """What reading a file took, and what became of it: capture, error, or what is wrong."""

    seconds: float
    peak_bytes: int
    result: str


def _moved(text: str, by: int) -> str:
    """Return a text with greater numbers, of those that are no small ones."""
    return re.sub(r"(?<![\w.])[0-9]{3,15}(?![\w.])", lambda found: str(int(found[0]) + by), text)


def _more_rows(text: str, size: int) -> str:
    """Return a text whose rows come again and again until it has `size` characters.

    Rows stand below the first line, or below ncu's header and units, which the lines of a program may precede; each
    launch of ncu has another ID.
    """
    if (head := text.find('"ID","Process ID"')) >= 0 and (
        rows := re.findall(r'^"\d+",.*\n', text[head:], re.MULTILINE)
    ):
        before = text[: head + text[head:].index(rows[0])]
        count = max(size // sum(map(len, rows)), 1)
        many = (row.partition(",")[2] for _ in range(count) for row in rows)
        return before + "".join(f'"{number}",{rest}' for number, rest in enumerate(many))
    first, _, rest = text.partition("\n")
    if not rest.strip():
        return text
    copies = max(size // len(rest), 1)
    return first + "\n" + "".join(_moved(rest, at) for at in range(copies))


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


def _sown(data: bytes, what: bytes, each: int, rng: random.Random) -> bytes:
    """Return the bytes with `what` put in about every `each` bytes."""
    parts, at = [], 0
    while at < len(data):
        end = at + rng.randrange(each, 2 * each)
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
    "whole": lambda data, rng: data,
    "cut": lambda data, rng: data[: len(data) * 2 // 3],
    "zeros instead of the rest": lambda data, rng: data[: len(data) // 2] + bytes(len(data) // 2),
    "a byte of 5,000 is another": lambda data, rng: _sown(data, b"\xff", 5000, rng),
}
TEXT: dict[str, Damage] = {
    "a quote near the start": lambda data, rng: data[: len(data) // 50] + b'"' + data[len(data) // 50 :],
    "a quote every 5,000 bytes": lambda data, rng: _sown(data, b'"', 5000, rng),
    "no quotes": lambda data, rng: data.replace(b'"', b""),
    "semicolons for commas": lambda data, rng: data.replace(b",", b";"),
    "a comma every 5,000 bytes": lambda data, rng: _sown(data, b",", 5000, rng),
    "no line ends": lambda data, rng: data.replace(b"\n", b" "),
    "empty lines between": lambda data, rng: data.replace(b"\n", b"\n\n"),
    "a line of a log every 5,000 bytes": lambda data, rng: _sown(data, b"\n==PROF== 3 done\n", 5000, rng),
    "no header": lambda data, rng: data.partition(b"\n")[2],
    "the header every 5,000 bytes": lambda data, rng: _sown(
        data, b"\n" + data.partition(b"\n")[0][:1000] + b"\n", 5000, rng
    ),
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


def read(data: bytes, folder: Path) -> Read:
    """Read a file in a fork of this process."""
    size = len(data)
    limit = START_SECONDS + SECONDS_OF_10_MB * size / 1e7
    (folder / "f.dat").write_bytes(data)
    heard, said = os.pipe()
    pid = os.fork()
    if not pid:
        _read(said, int(3 * limit) + 1, folder)
    os.close(said)
    with os.fdopen(heard) as stream:
        result = stream.read()
    _, status, used = os.wait4(pid, 0)
    seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    if status:
        result = f"ended with {status}"
    elif seconds > limit:
        result = f"more than {limit:.1f} s"
    elif peak > MEMORY_BYTES:
        result = f"more than {MEMORY_BYTES >> 20} MB"
    return Read(seconds, peak, result)


def _read(said: int, seconds: int, folder: Path) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        system.limit_memory(MEMORY_BYTES)
        os.chdir(folder)
        result = "capture"
        try:
            load([Path("f.dat")])
        except LedgerError as error:
            result = "error"
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


def main() -> int:
    """Read each file with each damage, and print those that are the slowest and the largest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", default=[], metavar="SEED")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    broken, count = 0, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        for seed in formats(options.only):
            whole = grown(seed, int(options.megabytes * 1e6))
            worst: list[tuple[float, str]] = []
            peak = 0
            for what, damage in damages(seed.form).items():
                data = damage(whole, random.Random(f"{options.seed} {seed.name} {what}"))
                done = read(data, Path(name))
                count += 1
                worst.append((max(done.seconds - START_SECONDS, 0) / max(len(data), 1) * 1e7, f"{what}: {done.result}"))
                peak = max(peak, done.peak_bytes)
                if done.result not in ("capture", "error"):
                    broken += 1
                    print(
                        f"BROKEN {seed.name}, {what}, {len(data) / 1e6:.1f} MB: {done.seconds:.1f} s, {done.result}",
                        flush=True,
                    )
            slowest, what = max(worst)
            print(
                f"{seed.name}: {len(whole) / 1e6:.1f} MB, at most {slowest:.2f} s for 10 MB ({what}), {peak >> 20} MB",
                flush=True,
            )
    print(f"{count} files, {broken} broke a limit")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())

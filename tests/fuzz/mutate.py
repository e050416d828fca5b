"""Damage files at random, whatever they mean: bytes, lines, columns, JSON values, pages and headers of SQLite."""

import contextlib
import gzip
import json
import random
from collections.abc import Callable
from typing import Any

LARGEST = 64 << 10
_NUMBERS = (
    b"0", b"-1", b"1e999", b"-0.0", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"nan", b"inf",
    b"1" * 400, b"1_000", b"0x1F", b"1.2.3", b"1,2,3", b"1,234.5", b"1.234,5", b"1.234", b"\xe2\x80\xaf1", b"1e", b"--1", b"+",
    b"1e-400", b"1 234", b"1'234", "٣".encode(), "²".encode(), "１２".encode(),
)  # fmt: skip
_TOKENS = (
    *_NUMBERS, b'"', b'""', b'"""', b",", b",,", b";", b"\t", b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b"\0\0\0\0", b"\xff", b"\xef\xbb\xbf",
    b"\xff\xfe", b"\xc3", b"\x1b[31m", "\u2028".encode(), "\u0085".encode(), b"\x0b", b"\x0c", b"\x1c", b"\xed\xa0\x80", b"\\ud800", b"\\u0000",
    b"==ERROR== x\n", b"==PROF== y\n", b"SKIPPED: x does not contain y\n", b"Processing [x] with [y]... \n", b"\nStart (ns),Duration (ns)\n",
    b" ** CUDA API Summary (cuda_api_sum):\n", b"n/a", b"None", b"null", b"true", b"{", b"}", b"[", b"]", b"[" * 3000, b'{"a":' * 2000, b":",
    b"(ns)", b"(us)", b"(MB)", b"(%)", b"()", b"(", b")", b"Kbyte", b"furlong/s", b"%", b"/", b" (1; 2)", b" (a: 1; b: x)", b"<default domain>:",
    b":none:none", b"-----  ----  ----", b"ID", b"Kernel Name", b"Name", b'"Metric Value"', b'"File Path","x"\n', b'"traceEvents"', b"A" * 5000,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 2**63, 2**64, 10**400, -(2**63), "", "x", "\ud800", "\u0000", "a/b", [], {}, [[]], {"": 0},
    "\x1b[2J", "a\nb", float("nan"), float("inf"), [1, 2], "9" * 99, 1e-320,
)  # fmt: skip

Mutation = Callable[[bytes, random.Random, bytes], bytes]


def _place(data: bytes, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    begin = _place(data, rng)
    return begin, min(len(data), begin + (rng.randrange(1, 9) if rng.random() < 0.6 else rng.randrange(1, 400)))


def _flip(data: bytes, rng: random.Random, other: bytes) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if raw:
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return bytes(raw)


def _set(data: bytes, rng: random.Random, other: bytes) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _insert(data: bytes, rng: random.Random, other: bytes) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice(_TOKENS) + data[at:]


def _replace(data: bytes, rng: random.Random, other: bytes) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + rng.choice(_TOKENS) + data[end:]


def _remove(data: bytes, rng: random.Random, other: bytes) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + data[end:]


def _double(data: bytes, rng: random.Random, other: bytes) -> bytes:
    begin, end = _span(data, rng)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 2, 30)) + data[end:]


def _move(data: bytes, rng: random.Random, other: bytes) -> bytes:
    begin, end = _span(data, rng)
    rest, at = data[:begin] + data[end:], 0
    at = _place(rest, rng)
    return rest[:at] + data[begin:end] + rest[at:]


def _cut(data: bytes, rng: random.Random, other: bytes) -> bytes:
    at = _place(data, rng)
    return data[:at] if rng.random() < 0.8 else data[at:]


def _splice(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def _join(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return data + rng.choice((b"", b"\n", b"\n\n")) + other


def _lines(data: bytes, rng: random.Random, other: bytes) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    what = rng.randrange(5)
    if what == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif what == 1:
        del lines[a]
    elif what == 2:
        lines.insert(a, lines[b])
    elif what == 3:
        lines.insert(a, rng.choice(other.split(b"\n")))
    else:
        lines[a:a] = [lines[b]] * rng.choice((3, 60))
    return b"\n".join(lines)


def _columns(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Columns swapped, dropped or doubled in the header, in the rows or in both."""
    sign = rng.choice((b",", b'","', b";", b"  "))
    lines = [line.split(sign) for line in data.split(b"\n")]
    width = max(len(cells) for cells in lines)
    a, b, what, which = rng.randrange(width), rng.randrange(width), rng.randrange(4), rng.randrange(3)
    for row, cells in enumerate(lines):
        if (which == 0 and row) or (which == 1 and not row) or max(a, b) >= len(cells):
            continue
        if what == 0:
            cells[a], cells[b] = cells[b], cells[a]
        elif what == 1:
            del cells[a]
        elif what == 2:
            cells.insert(b, cells[a])
        else:
            cells[a] = rng.choice(_TOKENS)
    return b"\n".join(sign.join(cells) for cells in lines)


def _cell(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """One cell becomes another number or token."""
    lines = data.split(b"\n")
    row = rng.randrange(len(lines))
    sign = b'","' if b'","' in lines[row] else b","
    cells = lines[row].split(sign)
    cells[rng.randrange(len(cells))] = rng.choice(_TOKENS if rng.random() < 0.5 else _NUMBERS)
    lines[row] = sign.join(cells)
    return b"\n".join(lines)


def _signs(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """One sign becomes another, everywhere or a few times."""
    old, new = rng.sample((b",", b";", b"\t", b'"', b".", b"'", b" ", b"\n", b"\r\n", b"|", b":", b"/", b"("), 2)
    return data.replace(old, new, rng.choice((-1, 1, 3)))


def _encode(data: bytes, rng: random.Random, other: bytes) -> bytes:
    text = data.decode("utf-8", errors="replace")
    name = rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "cp1252", "utf-7", "crlf", "cr"))
    if name in ("crlf", "cr"):
        return data.replace(b"\n", b"\r\n" if name == "crlf" else b"\r")
    return text.encode(name, errors="replace")


def _json(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A value somewhere in a JSON text becomes another one, or goes, or comes twice; or nests deeply."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return _replace(data, rng, other)
    for _ in range(rng.choice((1, 1, 3))):
        node, above, key = tree, None, None
        while isinstance(node, dict | list) and node and (above is None or rng.random() < 0.85):
            above = node
            key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
            node = node[key]  # type: ignore[index]
        if above is None:
            break
        what = rng.randrange(5)
        if what == 0:
            del above[key]  # type: ignore[arg-type]
        elif what == 1 and isinstance(above, list):
            above.append(node)
        elif what == 2 and isinstance(above, dict):
            above[rng.choice(("x", "kind", "", "traceEvents", "ts", "args"))] = node
        else:
            above[key] = rng.choice(_VALUES)  # type: ignore[index]
    with contextlib.suppress(ValueError):  # numbers too long to print
        return json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode("utf-8", errors="surrogatepass")
    return data


def _pack(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def _inside_gzip(data: bytes, rng: random.Random, other: bytes) -> bytes:
    try:
        inner = gzip.decompress(data)
    except (OSError, EOFError, ValueError):
        return _set(data, rng, other)
    except Exception:  # zlib.error
        return _flip(data, rng, other)
    return gzip.compress(rng.choice((_json, *TEXT))(inner, rng, other), 1, mtime=0)


def _sqlite_header(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A field of the first 100 bytes: page size, versions, counts, freelist, encoding."""
    begin, size = rng.choice(
        ((16, 2), (18, 1), (19, 1), (20, 1), (21, 1), (22, 1), (23, 1), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 4),
         (48, 4), (52, 4), (56, 4), (60, 4), (64, 4), (68, 4), (92, 4), (96, 4))
    )  # fmt: skip
    value = rng.choice((0, 1, 2, 3, 4, 5, 127, 128, 255, 256, 512, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1))
    return data[:begin] + (value % (1 << 8 * size)).to_bytes(size, "big") + data[begin + size :]


def _sqlite_page(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A page swapped, zeroed, doubled over another, cut off; its type, cell count, pointers, or a row's varints."""
    size = 512
    count = len(data) // size
    if count < 3:
        return _cut(data, rng, other)
    raw = bytearray(data)
    a, b = rng.randrange(1, count), rng.randrange(1, count)
    base, what = a * size, rng.randrange(9)
    if what == 0:
        raw[a * size : (a + 1) * size], raw[b * size : (b + 1) * size] = (
            data[b * size : (b + 1) * size],
            data[a * size : (a + 1) * size],
        )
    elif what == 1:
        raw[base : base + size] = bytes(size)
    elif what == 2:
        raw[base : base + size] = data[b * size : (b + 1) * size]
    elif what == 3:
        return data[: rng.randrange(count) * size]
    elif what == 4:
        raw[base] = rng.choice((0, 2, 5, 10, 13, 255))
    elif what == 5:
        raw[base + rng.randrange(1, 8)] = rng.randrange(256)
    elif what == 6:
        raw[base + 8 + rng.randrange(24)] = rng.randrange(256)
    else:
        cell = int.from_bytes(raw[base + 8 : base + 10], "big") % size
        for _ in range(rng.choice((1, 2, 6))):
            at = min(base + cell + rng.randrange(24), len(raw) - 1)
            raw[at] = rng.choice((0, 1, 7, 8, 9, 10, 11, 12, 13, 127, 128, 255, rng.randrange(256)))
    return bytes(raw)


def _sqlite_schema(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A letter or a name of the CREATE statements."""
    head = data[:4096]
    words = [
        b"CREATE",
        b"TABLE",
        b"INTEGER",
        b"TEXT",
        b"start",
        b"end",
        b"globalTid",
        b"correlationId",
        b"PRIMARY KEY",
        b"StringIds",
        b"value",
        b"text",
        b"(",
    ]
    word = rng.choice(words)
    new = rng.choice((word[::-1], word.upper(), rng.choice(words)[: len(word)].ljust(len(word)), b" " * len(word)))
    return head.replace(word, new, rng.choice((-1, 1, 2))) + data[4096:]


TEXT: tuple[Mutation, ...] = (
    _flip, _set, _insert, _insert, _replace, _replace, _remove, _double, _move, _cut, _splice, _join, _lines, _lines, _columns, _columns,
    _cell, _cell, _cell, _signs, _encode,
)  # fmt: skip
BY_FORM: dict[str, tuple[Mutation, ...]] = {
    "json": (_json, _json, _json, _json, _flip, _insert, _replace, _remove, _double, _cut, _splice, _encode, _pack),
    "gzip": (_inside_gzip, _inside_gzip, _inside_gzip, _flip, _set, _cut, _splice, _remove, _double),
    "sqlite": (
        _sqlite_header, _sqlite_page, _sqlite_page, _sqlite_page, _sqlite_schema, _flip, _flip, _set, _set, _replace, _cut, _splice, _remove,
    ),
    "binary": (_flip, _set, _cut, _insert, _splice, _join, _encode, _pack),
}  # fmt: skip


def mutate(data: bytes, form: str, other: bytes, rng: random.Random) -> bytes:
    """Return `data` with one to five random changes, at most LARGEST bytes."""
    choices = BY_FORM.get(form, TEXT)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        data = rng.choice(choices)(data, rng, other)[:LARGEST]
    return data

"""Captures that are committed packed with `xz -9`: read as they are, and told from their content, never by their name.

Imports the standard library alone.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from analysis.formats.errors import InputError

XZ = b"\xfd7zXZ\0"
MOST_BYTES = 1 << 30  # what a packed file may unpack to
_MOST_MEMORY = 128 << 20  # what unpacking may take beside that: `xz -9` needs 65 MiB
_MOST_STREAMS = 64  # `xz` writes one, and `cat a.xz b.xz` two
_AGAIN = "unpack it with `xz -d` and give what is in it, or copy it again"


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with `head` is packed."""
    return head.startswith(XZ)


def unpack(packed: bytes, where: str, most: int = MOST_BYTES) -> bytes:
    """What is in a packed file.

    Raises:
        InputError: it is damaged or cut off, or holds more than `most` bytes.
    """
    content = b""
    rest = packed
    for _ in range(_MOST_STREAMS):
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
        try:
            content += unpacker.decompress(rest, most + 1 - len(content))
        except lzma.LZMAError:
            break
        if len(content) > most:
            raise InputError(f"{where}: is an xz file of more than {most / 2**30:g} GiB when unpacked; {_AGAIN}.")
        if not unpacker.eof:
            raise InputError(f"{where}: is an xz file that was cut off; {_AGAIN}.")
        rest = unpacker.unused_data.lstrip(b"\0")  # padding between streams
        if not rest:
            return content
    raise InputError(f"{where}: is a damaged xz file; {_AGAIN}.")


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is packed.

    Raises:
        OSError: it cannot be read.
        InputError: it is packed and damaged, or holds too much.
    """
    raw = path.read_bytes()
    return unpack(raw, path.name) if is_packed(raw) else raw


def find(path: Path) -> Path:
    """`path`, or the packed file beside it (`ops.csv.xz` of `ops.csv`) where only that is there."""
    packed = path.with_name(f"{path.name}.xz")
    return packed if packed.is_file() and not path.exists() else path

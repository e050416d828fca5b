"""Read captures that are committed packed with `xz -9`. Their content identifies them, never their name.

Imports only the standard library.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from analysis.formats.errors import InputError

XZ = b"\xfd7zXZ\0"
MOST_BYTES = 1 << 30  # the largest size of an unpacked file
_MOST_MEMORY = 128 << 20  # the memory that unpacking may take besides: `xz -9` needs 65 MiB
_MOST_STREAMS = 64  # `xz` writes one, and `cat a.xz b.xz` two
_AGAIN = "unpack it with `xz -d` and give what is in it, or copy it again"


def is_packed(head: bytes) -> bool:
    """Return whether a file that begins with `head` is packed."""
    return head.startswith(XZ)


def unpack(packed: bytes, where: str, most: int = MOST_BYTES) -> bytes:
    """Unpack a file.

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
    """Return the content of a file, unpacked if it is packed.

    Raises:
        OSError: the file cannot be read.
        InputError: the file is packed and damaged, or holds too much.
    """
    raw = path.read_bytes()
    return unpack(raw, path.name) if is_packed(raw) else raw


def find(path: Path) -> Path:
    """Return `path`, or the packed file beside it (`ops.csv.xz` of `ops.csv`) if only that exists."""
    packed = path.with_name(f"{path.name}.xz")
    return packed if packed.is_file() and not path.exists() else path

"""Read captures that are committed packed with `xz -9`. Their content identifies them, never their name.

Imports only the standard library.
"""

import lzma
from pathlib import Path

from analysis.formats.errors import InputError

XZ = b"\xfd7zXZ\0"
MOST_BYTES = 1 << 30  # the largest size of an unpacked file
_SMALL_BYTES = 64 << 20  # that every file may unpack to
_MOST_RATIO = 200  # of it and the packed file: exports reach 60, and a file made to fill the memory 7,000
_MOST_MEMORY = 128 << 20  # the memory that unpacking may take besides: `xz -9` needs 65 MiB
_MOST_STREAMS = 64  # `xz` writes one, and `cat a.xz b.xz` two
_AGAIN = "unpack it with `xz -d` and give what is in it, or copy it again"


def is_packed(head: bytes) -> bool:
    """Return whether a file that begins with `head` is packed."""
    return head.startswith(XZ)


def stated_size(packed: bytes) -> int:
    """Return the size that the index of the last stream of an xz file states; 0 without an index that can be read.

    The file ends in its checksum, the size of the index, flags and `YZ` (The .xz File Format, 2.1.2 and 4).
    """
    packed = packed.rstrip(b"\0") if len(packed) % 4 == 0 else packed
    if packed[-2:] != b"YZ" or len(packed) < 24:
        return 0
    at = len(packed) - 12 - 4 * (int.from_bytes(packed[-8:-4], "little") + 1)
    index = packed[max(at, 0) : -12]
    numbers, value, shift = [], 0, 0
    for byte in index[1:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
        if numbers and len(numbers) > 2 * numbers[0]:
            break
    return sum(numbers[2::2]) if index[:1] == b"\0" else 0


def unpack(packed: bytes, where: str, most: int = MOST_BYTES) -> bytes:
    """Unpack a file.

    Raises:
        InputError: it is damaged or cut off, or holds more than `most` bytes, or far more than packed files do.
    """
    most = min(most, max(_SMALL_BYTES, _MOST_RATIO * len(packed)))
    too_large = InputError(f"{where}: is an xz file of more than {most >> 20:,} MiB when unpacked; {_AGAIN}.")
    if stated_size(packed) > most:
        raise too_large
    content = b""
    rest = packed
    for _ in range(_MOST_STREAMS):
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
        try:
            content += unpacker.decompress(rest, most + 1 - len(content))
        except lzma.LZMAError:
            break
        if len(content) > most:
            raise too_large
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
    if path.exists() or not path.name:
        return path
    packed = path.with_name(f"{path.name}.xz")
    return packed if packed.is_file() else path

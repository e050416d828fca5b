"""Read and write the file that delays.c shares with the driver: blocks of steps, and names with their decisions."""

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

# The layout of the file, as delays.c declares it.
BLOCKS, HEADER, FILE_BYTES, SLOTS = 8192, 1 << 20, 16 << 20, 24
NAME = struct.Struct("<IIQI")
DECIDED, MARKER, IN_RANGE = 1 << 31, 1 << 30, 1 << 29


class State(IntEnum):
    """What the library in the program does."""

    STARTING = 0
    ATTACHED = 1
    REFUSED = 2
    ENDED = 3


class Mode(IntEnum):
    """What a block asks for. CONTROL launches delays of length 0."""

    CONTROL = 0
    DELAY = 1
    HOST = 2
    REMOVE = 3
    VIRTUAL = 4


class Kind(IntEnum):
    """What a name belongs to."""

    KERNEL = 1
    COPY = 2
    RANGE = 3
    CALL = 4
    GRAPH = 5


@dataclass(frozen=True)
class Block:
    """A block of steps, with one setting, and what it measured. A slot of SLOTS or more is none.

    `every`: 3 delays one of three matches.
    """

    steps: int
    slot: int
    mode: Mode
    length_ns: int
    every: int = 1
    begin_ns: int = 0
    end_ns: int = 0
    delays: int = 0
    delayed_ns: int = 0
    hits: int = 0
    part_ns: int = 0

    @property
    def time_ns(self) -> int:
        """Return its length."""
        return self.end_ns - self.begin_ns

    @property
    def step_ns(self) -> float:
        """Return the time of a step."""
        return self.time_ns / self.steps

    @property
    def delay_ns(self) -> float:
        """Return the time of all delays in a step."""
        return self.delayed_ns / self.steps


@dataclass(frozen=True)
class Name:
    """A name that the program used: demangled, with its place in the file and how often it came."""

    text: str
    kind: Kind
    at: int
    count: int


class Header(ctypes.Structure):
    """What stands at the beginning of the file."""

    _fields_ = [
        ("magic", ctypes.c_char * 8),
        *((name, ctypes.c_uint32) for name in ("version", "pid")),
        ("rank", ctypes.c_int32),
        *((name, ctypes.c_uint32) for name in ("state", "asked_to_end", "published", "done", "names_bytes")),
        *((name, ctypes.c_uint32) for name in ("failed", "captured", "unchanged", "contexts", "in_graphs")),
        ("steps", ctypes.c_uint64),
        ("said", ctypes.c_char * 256),
        ("blocks", ctypes.c_uint64 * 12 * BLOCKS),
    ]


class Shared:
    """The mapped file of one process; `head` is its beginning, which the process changes."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), FILE_BYTES)
        self.head = Header.from_buffer(self._map)
        self._end = HEADER
        self.names: list[Name] = []

    def publish(self, blocks: list[tuple[int, Block]]) -> None:
        """Ask for blocks, each from a step on at the earliest."""
        number = self.head.published
        for place, (start, one) in enumerate(blocks, start=number):
            self.head.blocks[place][:6] = [start, one.steps, one.slot, one.mode, one.length_ns, one.every]
        self.head.published = number + len(blocks)

    def block(self, number: int) -> Block:
        """Return a block that is done."""
        _, steps, slot, mode, length, every, *measured = self.head.blocks[number]
        return Block(steps, slot, Mode(mode), length, every, *measured)

    def decide(self, decision: Callable[[Name], int]) -> None:
        """Decide on each new name."""
        for found in self._new():
            self.names.append(found)
            self.set(found, decision(found))

    def set(self, name: Name, decision: int) -> None:
        """Say which slots a name belongs to."""
        struct.pack_into("<I", self._map, name.at, DECIDED | decision)

    def counted(self) -> list[int]:
        """Return how often each of `names` came until now."""
        return [NAME.unpack_from(self._map, one.at)[2] for one in self.names]

    def _new(self) -> Iterator[Name]:
        end = HEADER + self.head.names_bytes
        while self._end < end:
            _, kind, count, length = NAME.unpack_from(self._map, self._end)
            raw = self._map[self._end + NAME.size : self._end + NAME.size + length]
            text = raw.decode("utf-8", errors="replace")
            yield Name(demangled(text) if kind == Kind.KERNEL else text, Kind(kind), self._end, count)
            self._end += 24 + length + 7 & ~7


@cache
def _demangler() -> Callable[[bytes], str | None]:
    try:
        call = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return lambda mangled: None
    call.restype, call.argtypes = ctypes.c_void_p, [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def demangle(mangled: bytes) -> str | None:
        found = call(mangled, None, None, None)
        if not found:
            return None
        text = ctypes.string_at(found).decode("utf-8", errors="replace")
        free(found)
        return text

    return demangle


def demangled(name: str) -> str:
    """Return a C++ name as people write it; any other name unchanged."""
    return (_demangler()(name.encode()) if name.startswith("_Z") else None) or name

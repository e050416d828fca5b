"""What a student project found when it sliced the batch of GPT-2's ops over four GPUs."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("claims.toml")
FORWARD = "forward"
CLAIMED_GPUS = 4


@dataclass(frozen=True)
class Sizes:
    """The sizes of the ops that are predicted and measured; the project's own are not known."""

    batch: int = 8
    tokens: int = 1024
    channels: int = 768
    heads: int = 12

    @property
    def words(self) -> str:
        return f"B {self.batch}, T {self.tokens}, C {self.channels}"


@dataclass(frozen=True)
class Claim:
    """One op: times on one GPU and sliced over four, if there are any, and why the opposite or the same is predicted.

    `resident`: the claim is of slicing itself, not of one that copies.
    """

    op: str
    why: str
    one_ns: float | None = None
    sliced_ns: float | None = None
    resident: bool = False

    @property
    def speedup(self) -> float:
        """What slicing is claimed to win; 1 where it is claimed to win nothing."""
        return self.one_ns / self.sliced_ns if self.one_ns and self.sliced_ns else 1.0


@cache
def claims() -> tuple[Claim, ...]:
    """The claims in the order of the file."""
    return tuple(Claim(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["claim"])


OPS = tuple(claim.op for claim in claims() if not claim.resident)

"""Read the claims of a student project that sliced the batch of GPT-2's ops over four GPUs."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("slices.toml")
FORWARD = "forward"
CLAIMED_GPUS = 4


@dataclass(frozen=True)
class Sizes:
    """The sizes of the ops that this study predicts and measures; the project does not report its own."""

    batch: int = 8
    tokens: int = 1024
    channels: int = 768
    heads: int = 12

    @property
    def words(self) -> str:
        return f"B {self.batch}, T {self.tokens}, C {self.channels}"


@dataclass(frozen=True)
class Claim:
    """One claim: an op, its times in ns on one GPU and sliced over four (None: it gains nothing), and our explanation.

    `resident`: the claim is about slices that already lie on their GPUs. Else every call copies its slices.
    """

    op: str
    why: str
    one_ns: float | None = None
    sliced_ns: float | None = None
    resident: bool = False

    @property
    def speedup(self) -> float:
        """Return the claimed speed-up of slicing; 1 if the project claims no gain."""
        return self.one_ns / self.sliced_ns if self.one_ns and self.sliced_ns else 1.0


@cache
def claims() -> tuple[Claim, ...]:
    """Return the claims of slices.toml, in its order."""
    return tuple(Claim(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["claim"])


OPS = tuple(claim.op for claim in claims() if not claim.resident)

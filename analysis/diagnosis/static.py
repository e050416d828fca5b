"""Judge a kernel by its machine code, before it runs. This is the tier without a capture.

The census (registers, spills, size of the code, instructions by opcode) shows only some causes. For the others,
`settle` returns the command of a capture that decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analysis.diagnosis.vocabulary import of_part

INSTRUCTION_CACHE_BYTES = 128 * 1024  # the largest level of one SM since Volta: arXiv 1804.06826, section 3.6


@dataclass(frozen=True)
class Census:
    """The machine code of one kernel in numbers: `opcodes` counts instructions by their full opcode ("LDG.E.128")."""

    kernel: str
    registers: int
    spill_bytes: int
    code_bytes: int
    opcodes: Mapping[str, int]

    def count(self, *starts: str) -> int:
        """Count the instructions whose opcode is one of `starts`, or begins with one of them and a full stop."""
        return sum(
            number for name, number in self.opcodes.items() for start in starts if f"{name}.".startswith(f"{start}.")
        )


@dataclass(frozen=True)
class StaticRule:
    """A rule that recognises one defect in machine code; `because` says how the code shows it."""

    defect: str
    holds: Callable[[Census], bool]
    because: str


STATIC_RULES = (
    StaticRule("register_spills", lambda c: c.spill_bytes > 0, "ptxas reports spilled bytes."),
    StaticRule(
        "local_array",
        lambda c: c.spill_bytes == 0 and c.count("LDL") > 0,
        "It loads from local memory and spills nothing, so the thread indexes an array at run time.",
    ),
    StaticRule(
        "instruction_cache",
        lambda c: c.code_bytes > INSTRUCTION_CACHE_BYTES,
        "The code is longer than the instruction cache of an SM.",
    ),
    StaticRule(
        "fp64_by_accident",
        lambda c: c.count("DFMA", "DMUL", "DADD") > 0 and c.count("F2F") > 0,
        "It computes in FP64 and converts from or to another precision.",
    ),
    StaticRule(
        "integer_division",
        lambda c: c.count("CALL") > 0 and c.count("FCHK", "MUFU.RCP64H", "DFMA") == 0,
        "It calls a routine, as the compiler does for division of 64-bit integers. It has no floating-point division, "
        "which also calls a routine in rare cases.",
    ),
    StaticRule(
        "tensor_starved",
        lambda c: c.count("HMMA", "IMMA", "DMMA") > 0 and c.count("LDS", "LDSM") == 0,
        "It multiplies on tensor cores and loads nothing from shared memory.",
    ),
    StaticRule(
        "shared_atomics_one_address",
        lambda c: c.count("ATOMS") > 0,
        "It has atomic operations on shared memory. Only counters tell whether they use the same word.",
    ),
    StaticRule(
        "global_atomics_one_address",
        lambda c: c.count("RED", "REDG", "ATOM", "ATOMG") > 0 and c.count("SHFL", "REDUX", "BAR") == 0,
        "It has atomic operations on global memory and reduces nothing before them.",
    ),
)


def judge_static(census: Census) -> StaticRule | None:
    """Return the first rule that fires for a kernel, or None."""
    return next((rule for rule in STATIC_RULES if rule.holds(census)), None)


def cannot_judge() -> tuple[str, ...]:
    """Return the causes that a census never shows."""
    return tuple(name for name in of_part("kernel") if name not in {rule.defect for rule in STATIC_RULES})


def settle(census: Census) -> str:
    """Return the ncu command that decides what the census leaves open."""
    return (
        f"ncu --set full --import-source yes --clock-control none -k 'regex:^{census.kernel}$' -c 1 -o kernel PROGRAM"
    )

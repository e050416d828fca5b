"""Check a comparison against the rules of a gate.toml: pass, fail, or unsure where time could not decide.

[[rule]]
name = "attention gets no slower"
metric = "time"            # or gpu_time (the GPU is busy), tokens_per_s, launches, dram_bytes, … (of a row)
layer = "*attention*"      # optional patterns of shells; without layer and kernel, the step as a whole
kernel = "softmax*"
most_growth = 0.02         # B over A, less 1, at most. Or most = 64, or least = 0.5: limits on B itself
tokens = 8                 # of a step, for tokens_per_s
"""

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from analysis.comparison.quantities import EXACT, number
from analysis.formats import symbols
from analysis.formats.comparison import Checked, ComparedStep, Comparison, Judged, Row, Verdict
from analysis.formats.errors import UsageError
from analysis.formats.words import duration

PASS, FAIL, UNSURE = "pass", "fail", "unsure"
EXIT = {PASS: 0, FAIL: 4, UNSURE: 5}
_RANK = {PASS: 0, UNSURE: 1, FAIL: 2}
METRICS = ("time", "gpu_time", "tokens_per_s", *(one.name for one in EXACT))
SHOWN = 5  # rows that a rule lists


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule of gate.toml."""

    name: str
    metric: str
    layer: str = "*"
    kernel: str = "*"
    most_growth: float | UnsetType = UNSET
    most: float | UnsetType = UNSET
    least: float | UnsetType = UNSET
    tokens: float | UnsetType = UNSET

    @property
    def of_step(self) -> bool:
        """Return whether it is about the step as a whole."""
        of_steps = ("time", "gpu_time", "tokens_per_s", "launches")
        return self.layer == "*" and self.kernel == "*" and self.metric in of_steps


class _Gate(Struct, frozen=True, forbid_unknown_fields=True):
    rule: list[Rule]


def read(path: Path) -> list[Rule]:
    """Read a gate.toml.

    Raises: UsageError if it is not readable, or a rule is none.
    """
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Gate).rule
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}; `analysis/comparison/gate.py` describes a gate.") from None
    for one in rules:
        limits = [limit for limit in (one.most_growth, one.most, one.least) if limit is not UNSET]
        if one.metric not in METRICS:
            known = ", ".join(METRICS)
            raise UsageError(f"{path}: rule {one.name!r} has the metric {one.metric!r}; known are {known}.")
        missing = {"tokens_per_s": one.tokens, "gpu_time": one.most_growth}.get(one.metric)
        if len(limits) != 1 or missing is UNSET:
            raise UsageError(
                f"{path}: rule {one.name!r} needs one of most_growth, most and least; tokens_per_s also needs tokens, "
                "and gpu_time needs most_growth."
            )
    return rules


def check(compared: Comparison, rules: Sequence[Rule]) -> list[Checked]:
    """Return what each rule says.

    Raises: UsageError if a rule matches nothing.
    """
    return [_check(compared, rule) for rule in rules]


def worst(checked: Sequence[Checked]) -> str:
    """Return the status of the gate: fail before unsure before pass."""
    return max((one.status for one in checked), key=lambda status: _RANK[status], default=PASS)


def _check(compared: Comparison, rule: Rule) -> Checked:
    found = [(status, text, row) for step in compared.steps for status, text, row in _matched(step, rule)]
    if not found:
        raise UsageError(
            f"the gate's rule {rule.name!r} matches nothing: no row has layer {rule.layer!r}, kernel {rule.kernel!r} "
            f"and a known {rule.metric} on both sides."
        )
    found.sort(key=lambda one: -_RANK[one[0]])
    status, text, row = found[0]
    bad = [text for status, text, _ in found if status != PASS]
    counted = f"{len(bad)} of {len(found)} rows: " if len(found) > 1 and bad else ""
    listed = bad[:SHOWN] + ([f"… and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else [])
    return Checked(
        rule.name, status, f"{counted}{text}", listed, row.file if row else "", row.line if row else 0
    )  # fmt: skip


def _matched(step: ComparedStep, rule: Rule) -> list[tuple[str, str, Row | None]]:
    if rule.of_step and step.a_ns and step.b_ns:
        if rule.metric == "launches":
            a, b = _launches(step, 0), _launches(step, 1)
            return [(*_of_values(rule, step.name, a, b), None)] if a and b else []
        if rule.metric == "gpu_time":
            return [(*_of_growth(rule, f"the GPU in {step.name}", step.gpu), None)] if step.gpu else []
        return [(*_of_time(rule, step.name, step.judged, step.a_ns, step.b_ns), None)]
    if rule.metric in ("tokens_per_s", "gpu_time"):
        return []
    rows = [row for row in step.rows if fnmatchcase(row.layer, rule.layer) and _has(row, rule.kernel)]
    if rule.metric == "time":
        return [
            (*_of_time(rule, _name(row), row.judged, row.a_ns, row.b_ns), row)
            for row in rows
            if row.judged and row.a_ns and row.b_ns
        ]
    return [
        (*_of_values(rule, _name(row), one.a, one.b, one.differs), row)
        for row in rows
        for one in row.quantities
        if one.name == rule.metric
    ]


def _launches(step: ComparedStep, side: int) -> float:
    found = [(one.a, one.b)[side] for row in step.rows for one in row.quantities if one.name == "launches"]
    return float(sum(value or 0.0 for value in found))


def _has(row: Row, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (*row.a, *row.b))


def _name(row: Row) -> str:
    names = row.b or row.a
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{row.layer or 'no range'}: {symbols.short(names[0])}{more}"


def _of_time(rule: Rule, name: str, judged: Judged, a_ns: float | None, b_ns: float | None) -> tuple[str, str]:
    """Return status and sentence for a limit on time: what the interval leaves open is unsure."""
    a, b = float(a_ns or 0), float(b_ns or 0)
    if rule.metric == "tokens_per_s":
        tokens = float(rule.tokens) if rule.tokens is not UNSET else 0.0
        a, b = tokens / a * 1e9, tokens / b * 1e9
        return _of_values(rule, name, a, b) if rule.most_growth is UNSET else _of_growth(rule, name, judged)
    return _of_growth(rule, name, judged) if rule.most_growth is not UNSET else _of_values(rule, name, a, b)


def _of_growth(rule: Rule, name: str, judged: Judged) -> tuple[str, str]:
    limit = 1 + (float(rule.most_growth) if rule.most_growth is not UNSET else 0.0)
    ratio = f"{judged.ratio - 1:+.1%}" if judged.ratio else "an unknown change"
    span = f" ({judged.low - 1:+.1%} to {judged.high - 1:+.1%})" if judged.low and judged.high else ""
    text = f"{name}: {judged.verdict}, {ratio}{span}, limit {limit - 1:+.1%}"
    if judged.verdict in (Verdict.SAME, Verdict.FASTER) or (judged.high is not None and judged.high <= limit):
        return PASS, text
    if judged.verdict is Verdict.SLOWER and (judged.ratio is None or judged.low is None or judged.ratio > limit):
        return FAIL, text
    more = f"; {judged.more} more runs a side would decide" if judged.more else ""
    return UNSURE, f"{text}; {judged.why}{more}"


def _of_values(rule: Rule, name: str, a: float | None, b: float | None, differs: bool = True) -> tuple[str, str]:
    show = duration if rule.metric == "time" else number
    text = f"{name}: {rule.metric} {show(a or 0.0)} → {show(b or 0.0)}"
    if a is None or b is None:
        return UNSURE, f"{text}, unknown on one side"
    if rule.most is not UNSET:
        return (FAIL if b > rule.most else PASS), f"{text}, at most {show(rule.most)}"
    if rule.least is not UNSET:
        return (FAIL if b < rule.least else PASS), f"{text}, at least {show(rule.least)}"
    growth = float(rule.most_growth) if rule.most_growth is not UNSET else 0.0
    return (FAIL if differs and b > a * (1 + growth) else PASS), f"{text}, growth at most {growth:.1%}"

"""Test the counters: a copy of known bytes and matrix products of known FLOPs, counted in the same ncu run."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.formats import place
from analysis.formats.run import SELFTEST
from analysis.tables.conditions import Ncu

LIMITS = {"byte": 0.03, "FLOP": 0.01}  # the largest deviation of ncu from known bytes and operations


Check = dict[str, Any]


def kept_selftest_of(capture: Capture, gpu: str | None, ncu: Ncu) -> dict[str, Any] | None:
    """Return the self-test that an earlier run on this GPU stored; None if it belongs to another GPU or another ncu."""
    kept = capture.ours.get(SELFTEST.kind)
    if not kept or (gpu and kept["gpu"] != gpu) or kept["ncu"] != (ncu or {}).get("version"):
        return None
    return kept


def check_counters(
    all_measured: pd.DataFrame, ops: pd.DataFrame | None, *, has_ncu: bool = False,
    kept_selftest: dict[str, Any] | None = None, used: str = "",
) -> dict[str, object]:  # fmt: skip
    """Return report.json's `trust`: status trusted, untrusted or untested, a sentence, and each check.

    The harness declares the expected values in ops.csv (op `selftest`); ncu measured the others. One check beyond its
    limit makes every counter of the run untrusted, because all have the same source. `has_ncu`: any file comes from
    ncu, even one without durations. A run without its own self-test uses the stored one. `used`: what samples of the
    running program say of a step, "" without samples.
    """
    if not has_ncu and (all_measured.empty or all_measured["duration_ns"].isna().all()):
        said = f"Counters were sampled in the running program. A step uses {used}." if used else ""
        return {"status": "untested", "sentence": said, "checks": []}
    checks: list[Check] = []
    without_value: list[str] = []
    counts, when = list(_expected(all_measured, ops)), ""
    if not counts and kept_selftest:
        driver, at = kept_selftest["driver"], kept_selftest["measured"]
        when = f" The self-test ran at {at}, on this model of GPU with driver {driver}."
        counts = [(one["name"], one["unit"], one["expected"], one["measured"]) for one in kept_selftest["checks"]]
    for name, unit, wanted, got in counts:
        if pd.isna(got):
            without_value.append(name)
            continue
        error = got / wanted - 1
        limit = LIMITS[unit]
        checks.append(
            {
                "name": name, "unit": unit, "expected": wanted, "measured": got, "error_frac": error,
                "limit_frac": limit, "passed": abs(error) <= limit,
            }
        )  # fmt: skip
    status, sentence = _verdict(checks, without_value)
    sentence += when + (f" In the running program, a step uses {used}." if used else "")
    return {"status": status, "sentence": sentence, "checks": checks}


def _expected(measured: pd.DataFrame, ops: pd.DataFrame | None) -> Iterator[tuple[str, str, float, float]]:
    """Yield name, unit, declared value and ncu's value (NaN: none) of every declared count."""
    declared = ops[ops["op"] == "selftest"] if ops is not None else pd.DataFrame()
    for _, op in declared.iterrows():
        rows = measured[measured["path"] == op["range"]]
        note = dict(part.split("=", 1) for part in str(op["note"]).split(";") if "=" in part)
        for name, unit, expected, column in (
            ("DRAM bytes read", "byte", note.get("read"), "dram_read_bytes"),
            ("DRAM bytes written", "byte", note.get("write"), "dram_write_bytes"),
            ("floating-point operations", "FLOP", op["flops"], "flops"),
        ):
            wanted = pd.to_numeric(expected, errors="coerce")
            if pd.isna(wanted) or wanted <= 0:
                continue
            got = rows[column].sum(skipna=False) if column in rows and len(rows) else float("nan")
            yield f"{op['variant']}: {name}", unit, float(wanted), float("nan") if pd.isna(got) else float(got)


def _verdict(checks: Sequence[Check], without_value: Sequence[str]) -> tuple[str, str]:
    """Return the status and the sentence for all checks; `without_value` are the counts that ncu did not give."""
    units = {check["unit"] for check in checks}
    if failed := [check for check in checks if not check["passed"]]:
        worst = max(failed, key=lambda check: abs(check["error_frac"]))
        return "untrusted", (
            f"The counter self-test failed ({worst['name']} is off by {worst['error_frac']:+.1%}), "
            "so no counter number of this run can be trusted."
        )
    if without_value and checks:
        return (
            "untested",
            f"The counters of this run are untested: ncu gave no value for {', '.join(without_value)}.",
        )
    if units == set(LIMITS):
        of_bytes, of_flops = (
            max(abs(check["error_frac"]) for check in checks if check["unit"] == unit) for unit in ("byte", "FLOP")
        )
        return "trusted", (f"The counters passed their self-test: bytes ± {of_bytes:.2%}, FLOPs ± {of_flops:.2%}.")
    missing = " and ".join(sorted(set(LIMITS) - units))
    return "untested", (
        f"The counters of this run are untested: it holds no self-test with known {missing} counts ({place.SELFTEST})."
    )

"""Are the counters true? A copy of known bytes and matrix products of known FLOPs, seen through the same ncu run."""

from __future__ import annotations

import pandas as pd

from analysis.tables.declare import fact

LIMITS = {"byte": 0.03, "FLOP": 0.01}


@fact("trust")
def check_counters(all_measured: pd.DataFrame, ops: pd.DataFrame | None) -> dict[str, object]:
    """Return report.json's `trust`: status trusted, untrusted or untested, a sentence, and each check.

    Expected values are declared by the harness in ops.csv (op `selftest`); measured ones come from ncu. One check
    beyond its limit makes every counter of the run untrusted, because all came the same way.
    """
    measured = all_measured
    if measured.empty or measured["duration_ns"].isna().all():
        return {"status": "untested", "sentence": "This report holds no hardware counters.", "checks": []}
    checks: list[dict[str, object]] = []
    without_value: list[str] = []
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
            if pd.isna(got):
                without_value.append(f"{op['variant']}: {name}")
                continue
            error = float(got) / float(wanted) - 1
            checks.append(
                {
                    "name": f"{op['variant']}: {name}",
                    "unit": unit,
                    "expected": float(wanted),
                    "measured": float(got),
                    "error_frac": error,
                    "limit_frac": LIMITS[unit],
                    "passed": abs(error) <= LIMITS[unit],
                }
            )
    failed = [check for check in checks if not check["passed"]]
    units = {check["unit"] for check in checks}
    if failed:
        worst = max(failed, key=lambda check: abs(float(check["error_frac"])))  # type: ignore[arg-type]
        status, sentence = (
            "untrusted",
            (
                f"The counter self-test failed ({worst['name']} is off by {worst['error_frac']:+.1%}), "
                "so no counter number of this run can be trusted."
            ),
        )
    elif without_value and checks:
        status, sentence = (
            "untested",
            f"The counters of this run are untested: ncu gave no value for {', '.join(without_value)}.",
        )
    elif units == set(LIMITS):
        byte_error = max(abs(float(c["error_frac"])) for c in checks if c["unit"] == "byte")  # type: ignore[arg-type]
        flop_error = max(abs(float(c["error_frac"])) for c in checks if c["unit"] == "FLOP")  # type: ignore[arg-type]
        status, sentence = (
            "trusted",
            (
                f"The counters passed their self-test: known bytes within {byte_error:.2%}, "
                f"known FLOPs within {flop_error:.2%}."
            ),
        )
    else:
        missing = " and ".join(sorted(set(LIMITS) - units))
        status, sentence = (
            "untested",
            (
                f"The counters of this run are untested: "
                f"it holds no self-test with known {missing} counts (make selftest)."
            ),
        )
    return {"status": status, "sentence": sentence, "checks": checks}

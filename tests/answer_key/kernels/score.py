"""Score what the diagnosis says of kernels with one known defect: `python tests/answer_key/kernels/score.py [--each]`.

`kernels.cu` holds 40 kernels in two forms, slow and fixed, and 8 clean ones; `times.csv` their times on an H100 without
a profiler. A pair whose fix wins less than WORTH is a trap: its cause must not be named. FIRST_LOOK keeps the first
score, before any rule saw these kernels, and is never written again.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from analysis.capture.load import load  # noqa: E402 - as the path has just been set
from analysis.diagnosis.each import build_diagnosis  # noqa: E402
from analysis.facts import Facts  # noqa: E402

FIRST_LOOK = HERE / "first_look.csv"
WORTH = 0.06  # of the time of the slow form
SLACK, NEAR = 1.1, 0.25  # a speed-up may exceed its bound by this factor; a bound this near to the speed-up is near
SILENT = ("", "none_at_roof", "launch_latency", "unknown", "nothing", "memory_roof", "compute_roof")
ALSO = {
    "feed_warps": ("no_overlap",),
    "fragments": ("no_tile",),
}  # as right as the cause, decided before the first look


def score() -> pd.DataFrame:
    """Return one row a kernel and list of metrics: what is right, what was said, and whether that is right."""
    truth = pd.read_csv(HERE / "times.csv")
    rows = []
    for metrics in ("default", "full"):
        table = Facts(load([HERE / "captures" / metrics])).once(build_diagnosis)
        first = table.sort_values("rank", kind="stable").drop_duplicates("range").set_index("range")
        for one in truth.itertuples():
            form = "clean" if pd.isna(one.fixed_us) else "slow"
            said = first.loc[f"{one.name}/{form}"] if f"{one.name}/{form}" in first.index else None
            named = "" if said is None or pd.isna(said["defect"]) else str(said["defect"])
            won = None if form == "clean" else one.slow_us / one.fixed_us
            is_trap = won is not None and 1 - 1 / won < WORTH
            kind = "trap" if is_trap else "clean" if form == "clean" else "defect"
            allowed = (one.cause, *ALSO.get(one.name, ()))
            right = named not in allowed if is_trap else named in (SILENT if kind == "clean" else allowed)
            bound = (
                None if said is None or pd.isna(said["gain_bound_frac"]) else 1 / max(1e-9, 1 - said["gain_bound_frac"])
            )
            sure = None if said is None or pd.isna(said["sure_frac"]) else round(float(said["sure_frac"]), 3)
            rows.append(
                (
                    one.name,
                    metrics,
                    kind,
                    one.cause,
                    named,
                    right,
                    sure,
                    won and round(won, 3),
                    bound and round(bound, 3),
                )
            )
    return pd.DataFrame(rows, columns=["kernel", "metrics", "kind", "cause", "named", "right", "sure", "won", "bound"])


def summary(rows: pd.DataFrame) -> str:
    """Return the figures as lines."""
    lines = []
    for metrics, of in rows.groupby("metrics"):
        for kind, some in of.groupby("kind"):
            lines.append(f"{metrics:8} {kind:7} {int(some['right'].sum())} of {len(some)} right")
        pairs = of[(of["kind"] == "defect") & of["right"] & of["bound"].notna()]
        holds = (pairs["won"] <= pairs["bound"] * SLACK).sum()
        near = ((pairs["bound"] / pairs["won"] - 1).abs() <= NEAR).sum()
        lines.append(
            f"{metrics:8} of {len(pairs)} right causes: {holds} speed-ups within the bound, {near} bounds near"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the score, and keep it if it is the first."""
    rows = score()
    if not FIRST_LOOK.exists():
        rows.to_csv(FIRST_LOOK, index=False, quoting=csv.QUOTE_MINIMAL)
    if "--each" in sys.argv:
        print(rows.to_string(index=False))
    if FIRST_LOOK.exists():
        print(
            "first look\n"
            + summary(
                pd.read_csv(FIRST_LOOK, keep_default_na=False, na_values={"won": [""], "bound": [""], "sure": [""]})
            )
        )
    print("today\n" + summary(rows))
    wrong = rows[~rows["right"]]
    print("named instead:", dict(Counter(zip(wrong["cause"], wrong["named"], strict=True)).most_common(12)))


if __name__ == "__main__":
    main()

"""Score what the reports say of captures of run.py against cases.toml: prints totals, and writes a row for each capture.

    python tests/answer_key/ranks/score.py --half tuned|blind|blind_2|blind_3 [FOLDER]

FOLDER has NAME.NUMBER.sqlite of each capture; without it, captures.tar.xz is unpacked. Rows stand in latest_HALF.csv; those of the
first look at a blind set stay in first_look.csv, first_look_2.csv or first_look_3.csv, which are never written again.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(HERE)]

import pack  # noqa: E402

from analysis.capture.load import load  # noqa: E402
from analysis.diagnosis.rank_note import alone, small, straggler  # noqa: E402
from analysis.diagnosis.rank_steps import build_rank_steps  # noqa: E402
from analysis.diagnosis.savers import Saver, StepAnswer  # noqa: E402
from analysis.diagnosis.step_findings import claims  # noqa: E402
from analysis.diagnosis.step_tables import answer_steps  # noqa: E402
from analysis.facts import Facts  # noqa: E402
from analysis.formats.errors import LedgerError  # noqa: E402

CASES: dict[str, dict[str, Any]] = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
CAUSES = {  # how the title of a finding begins
    "Give the ranks equal work": "more_work", "Share what only one rank does": "own_work", "Let no rank": "host",
    "Make the slow GPU": "slow_gpu", "Use the whole link": "slow_link", "Send fewer, larger": "small_buckets",
}  # fmt: skip
NEAR_NS, NEAR = 5_000, 0.05
COLUMNS = (
    "capture", "half", "kind", "ranks", "cause", "first", "said_cause", "rank", "said_rank", "layer", "said_layer",
    "injected_ns", "said_ns", "steps_near", "steps", "low", "high", "measured", "measured_low", "measured_high", "bound", "refused",
)  # fmt: skip


def cause_of(title: str) -> str:
    """Return the cause that a title names, "" for another finding."""
    return next((cause for begin, cause in CAUSES.items() if title.startswith(begin)), "")


def row_of(name: str, path: Path, times: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one capture."""
    case = CASES[name.partition(".")[0]]
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row |= {"capture": name, "half": case["half"], "kind": case["kind"], "ranks": case.get("ranks", 2)}
    row |= {"cause": case["cause"], "rank": case.get("rank", ""), "layer": case.get("layer", "")}
    row["injected_ns"] = case.get("ns", "")
    row |= measured(times.get(name, {}))
    try:
        facts = Facts(load([path]))
        answer = facts.once(answer_steps)[0]
    except (LedgerError, IndexError) as error:
        return row | {"refused": str(error) or "no step"}
    told = claims([answer])
    row["first"] = told[0].title if told else ""
    if case["cause"] == "exposed":
        row["bound"] = bound(facts, answer)
    return row | said(facts, answer) | steps_near(facts, case)


def said(facts: Facts, answer: StepAnswer) -> dict[str, Any]:
    """Return what the report says of a rank, or else of links and buckets: rank, layer, cause, time and saving."""
    found = [(one, cause_of(one.proposal.title)) for one in sorted(answer.savers, key=lambda one: bool(one.after))]
    found = [item for item in found if item[1]]
    late = straggler(facts)
    if not found and late:
        return {"said_cause": "first_step", "said_ns": round(late.ns)} | _place(late.rank)
    if not found:
        own, noted = alone(answer.view), small(answer)
        if own is not None:
            return {"said_cause": "own_work", "said_ns": round(own.ns)} | _place(f"{own.rank} {own.range}")
        if noted is None:
            return {}
        found = [(noted, cause_of(noted.proposal.title))]
    one, cause = found[0]
    proposal = one.proposal
    where = _place(f"{proposal.title} {proposal.about} {proposal.sentence}") if proposal.kind == "slow_rank" else {}
    return where | {"said_cause": cause, "said_ns": round(proposal.time_ns)} | _saves(one)


def _saves(one: Saver) -> dict[str, Any]:
    ends = one.saves_frac.low, one.saves_frac.high
    return {key: "" if end is None else round(end, 4) for key, end in zip(("low", "high"), ends, strict=True)}


def _place(text: str) -> dict[str, Any]:
    rank, layer = re.search(r"[Rr]ank (\d+)", text), re.search(r"layer\.(\d+)", text)
    return {"said_rank": int(rank[1]) if rank else "", "said_layer": int(layer[1]) if layer else ""}


def steps_near(facts: Facts, case: dict[str, Any]) -> dict[str, Any]:
    """Return in how many steps the rank is as late as injected, of how many."""
    table = facts.once(build_rank_steps)
    if table is None or "ns" not in case or case["cause"] == "first_step":
        return {}
    late = table.loc[table["rank"] == f"rank {case['rank']}", "late_ns"].dropna().to_numpy(float)
    near = np.abs(late - case["ns"]) <= max(NEAR_NS, NEAR * case["ns"])
    return {"steps_near": int(near.sum()), "steps": len(near)}


def bound(facts: Facts, answer: StepAnswer) -> float | str:
    """Return the largest share of a steady step that a rank could hide, by rank_steps.csv."""
    table = facts.once(build_rank_steps)
    if table is None:
        return ""
    hidden = table[table["steady"] == "yes"].groupby("rank")["hideable_ns"].median().max()
    return "" if hidden is pd.NA else round(float(hidden) / answer.view.step.step_ns, 4)


def measured(times: dict[str, list[float]]) -> dict[str, Any]:
    """Return what the fix wins of a step, from blocks of both forms in turn, with its bootstrap interval."""
    if not times:
        return {}
    wins = 1 - np.array(times["b"]) / np.array(times["a"])
    drawn = np.random.default_rng(0).choice(wins, (2000, len(wins)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return {
        "measured": round(float(np.median(wins)), 4),
        "measured_low": round(low, 4),
        "measured_high": round(high, 4),
    }


def totals(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each goal."""
    bad = [row for row in rows if row["cause"] not in ("none", "exposed")]
    ranked = [row for row in bad if row["rank"] != ""]
    layered = [row for row in ranked if row["layer"] != ""]
    skewed = [row for row in ranked if row["injected_ns"] != "" and row["cause"] != "first_step"]
    clean = [row for row in rows if row["cause"] == "none"]
    timed = [row for row in bad if row["measured"] != ""]
    hid = [row for row in rows if row["bound"] != "" and row["measured"] != ""]
    right = [row for row in timed if row["said_cause"] == row["cause"] and row["low"] != ""]
    near = [_near(row) for row in skewed]
    steps = sum(row["steps_near"] or 0 for row in skewed), sum(row["steps"] or 0 for row in skewed)
    accused = [row["capture"] for row in clean if row["said_cause"]]
    inside = [row for row in right if row["low"] <= row["measured"] <= row["high"]]
    yield f"injected skew told within 5 % or 5 µs: {sum(near)} of {len(near)} (goal 95 %)"
    yield f"the same of each step's lateness: {steps[0]} of {steps[1]}"
    yield f"rank named: {sum(row['said_rank'] == row['rank'] for row in ranked)} of {len(ranked)} (goal 95 %)"
    yield f"layer named: {sum(row['said_layer'] == row['layer'] for row in layered)} of {len(layered)} (goal 90 %)"
    yield f"cause named: {sum(row['said_cause'] == row['cause'] for row in bad)} of {len(bad)}"
    yield f"clean runs accused: {len(accused)} of {len(clean)} (goal 0) {' '.join(accused)}"
    yield f"win of the fix in the interval: {len(inside)} of {len(right)} of right causes, of {len(timed)} timed (goal 80 %)"
    yield f"win of smaller buckets at most what could be hidden: {sum(row['measured_low'] <= row['bound'] for row in hid)} of {len(hid)}"


def _near(row: dict[str, Any]) -> bool:
    if row["said_ns"] == "" or row["said_rank"] != row["rank"]:
        return False
    return bool(abs(row["said_ns"] - row["injected_ns"]) <= max(NEAR_NS, NEAR * row["injected_ns"]))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--half", choices=["tuned", "blind", "blind_2", "blind_3"], required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    times = json.loads(lzma.decompress(pack.TIMES.read_bytes()))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        given = options.folder and {path.stem: path for path in options.folder.rglob("*.sqlite")}
        for name, path in sorted((given or pack.unpack(Path(folder))).items()):
            if CASES[name.partition(".")[0]]["half"] == options.half and re.search(options.only, name):
                rows.append(row_of(name, path, times))
                print({key: value for key, value in rows[-1].items() if value != ""}, flush=True)
    print("\n".join(totals(rows)))
    first = options.half.replace("blind", "first_look") + ".csv"
    names = [f"latest_{options.half}.csv"] + ([first] if options.half != "tuned" else [])
    for target in [HERE / name for name in names] if rows and not options.only else []:
        if target.name != first or not target.exists():
            with target.open("w", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

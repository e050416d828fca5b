"""Score what the diagnosis says of kernels with one known defect: `python tests/answer_key/kernels/score.py [SET] [--each]`, or `--sets`.

SET is `kernels`, or one of the folders `kernels_2` and on. Its CUDA files hold kernels in two forms, slow and fixed, and clean ones; `times.csv`
their times on an H100 or H200 without a profiler, the cause, and after | causes that are as right. A pair whose fix wins less
than WORTH is a trap: its cause must not be named. `first_look.csv` keeps the first score, before any rule saw these
kernels, and is never written again.
"""

from __future__ import annotations

import csv
import lzma
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from analysis.capture.load import load  # noqa: E402 - as the path has just been set
from analysis.diagnosis.each import build_diagnosis  # noqa: E402
from analysis.facts import Facts  # noqa: E402
from tests.answer_key.score import Figure, looks  # noqa: E402

WORTH = 0.06  # of the time of the slow form
SLACK, NEAR = 1.1, 0.25  # a speed-up may exceed its bound by this factor; a bound this near to the speed-up is near
READ: dict[str, Any] = {
    "keep_default_na": False,
    "na_values": {name: [""] for name in ("won", "bound", "least", "sure")},
}
SILENT = ("", "none_at_roof", "launch_latency", "unknown", "nothing", "memory_roof", "compute_roof")


def declared_facts(folder: Path, metrics: str) -> Facts:
    """Return the facts of a capture of a set, with the sizes of operands that the set declares."""
    read, file = load([folder / "captures" / metrics]), folder / "operands.csv"
    if not file.exists():
        return Facts(read)
    sizes = pd.read_csv(file).set_index("kernel").sum(axis=1)
    rows = [(f"{kernel}/{form}", size) for kernel, size in sizes.items() for form in ("slow", "clean")]
    return Facts(replace(read, ops=pd.DataFrame(rows, columns=["range", "minimum_bytes"])))


def score(name: str = HERE.name) -> pd.DataFrame:
    """Return one row a kernel of a set and list of metrics: what is right, what was said, and whether that is right."""
    folder = HERE.parent / name
    truth = pd.read_csv(folder / "times.csv", keep_default_na=False, na_values={"fixed_us": [""]})
    rows = []
    for metrics in (one for one in ("default", "full") if (folder / "captures" / one).is_dir()):
        table = declared_facts(folder, metrics).once(build_diagnosis)
        of = table["range"].str.extract("^([^/]*/[^/]*)", expand=False)  # a library may open ranges of its own inside
        first = table.assign(range=of).sort_values("rank", kind="stable").drop_duplicates("range").set_index("range")
        captured = lzma.decompress((folder / "captures" / metrics / "ncu_raw.csv.xz").read_bytes()).decode()
        for one in truth.itertuples():
            form = "clean" if pd.isna(one.fixed_us) else "slow"
            if f":{one.name}/{form}:" not in captured:
                continue
            said = first.loc[f"{one.name}/{form}"] if f"{one.name}/{form}" in first.index else None
            named = "" if said is None or pd.isna(said["defect"]) else str(said["defect"])
            won = None if form == "clean" else one.slow_us / one.fixed_us
            is_trap = won is not None and 1 - 1 / won < WORTH
            kind = "trap" if is_trap else "clean" if form == "clean" else "defect"
            allowed = (one.cause, *filter(None, one.also.split("|")))
            right = named not in allowed if is_trap else named in (SILENT if kind == "clean" else allowed)
            least, bound = (
                None if said is None or pd.isna(said[end]) else round(1 / max(1e-9, 1 - said[end]), 3)
                for end in ("gain_low_frac", "gain_bound_frac")
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
                    bound,
                    least,
                )
            )
    return pd.DataFrame(
        rows, columns=["kernel", "metrics", "kind", "cause", "named", "right", "sure", "won", "bound", "least"]
    )


def figures(rows: pd.DataFrame) -> dict[str, Figure]:
    """Return what is counted of a set, each for the default list of metrics and for all."""
    of = {
        "default": counted(rows[rows["metrics"] == "default"], 0.85),
        "all": counted(rows[rows["metrics"] == "full"], 0.9),
    }
    return {f"{name}, {metrics}": of[metrics][name] for name in of["all"] for metrics in of}


def counted(rows: pd.DataFrame, goal: float) -> dict[str, Figure]:
    """Return what is counted for one list of metrics; `goal` is that of first causes."""
    of = {kind: rows.loc[rows["kind"] == kind, "right"].astype(bool) for kind in ("defect", "clean", "trap")}
    pairs = rows[(rows["kind"] == "defect") & rows["right"] & rows["bound"].notna()]
    saved = 1 - 1 / pairs["won"]  # of the time of the slow form, which a finding states
    least = pairs["least"].fillna(pairs["bound"]) if "least" in pairs else pairs["bound"]  # first looks had no low end
    middle = 1 - (1 / least + 1 / pairs["bound"]) / 2
    found = {
        "first cause right": (of["defect"], goal),
        "clean kernels advised": (~of["clean"], 0),
        "traps named": (~of["trap"], 0),
        "speed-up within the bound × 1.1": (pairs["won"] <= pairs["bound"] * SLACK, 0.97),
        "stated saving within 25 % of the speed-up": ((1 / (1 - middle) / pairs["won"] - 1).abs() <= NEAR, 0.7),
        "stated saving within 25 % of the time saved": ((middle / saved - 1).abs() <= NEAR, 0.7),
    }
    return {name: Figure(int(one.sum()), len(one), goal) for name, (one, goal) in found.items()}


def summary(rows: pd.DataFrame) -> str:
    """Return the figures as lines."""
    return "\n".join(f"{name}: {one.many} of {one.all}" for name, one in figures(rows).items() if one.all)


def side_by_side() -> str:
    """Return the two tables of the README, on causes and on bounds: for each set its first look and today's score."""
    files = sorted(HERE.parent.glob("kernels*/first_look.csv"), key=lambda path: (len(path.parent.name), path))
    rows = {f"`{path.parent.name}`": (pd.read_csv(path, **READ), score(path.parent.name)) for path in files}
    rows["all sets"] = tuple(pd.concat(of, ignore_index=True) for of in zip(*rows.values(), strict=True))
    found = {name: [figures(one) for one in of] for name, of in rows.items()}
    names = list(found["all sets"][0])
    return "\n\n".join(looks("set", found, part) for part in (names[:6], names[6:]))


def calibration() -> str:
    """Return how often the causes named at the first looks of all sets were right, beside how sure they were."""
    looks = [pd.read_csv(path, **READ) for path in sorted(HERE.parent.glob("kernels*/first_look.csv"))]
    rows = pd.concat(looks, ignore_index=True).query("kind != 'clean' and sure.notna()")
    rows = rows[~rows["named"].isin(SILENT)].assign(right=rows["right"].astype(float))
    groups = rows.groupby(pd.cut(rows["sure"], [0, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0]), observed=True)
    return str(
        groups.agg(said=("sure", "mean"), right=("right", "mean"), causes=("right", "size")).round(2).to_string()
    )


def main(arguments: list[str]) -> None:
    """Print the score of a set, and keep it if it is the first; with --sets the tables of the README."""
    if "--sets" in arguments:
        print(side_by_side())
        return
    name = next((word for word in arguments if not word.startswith("-")), HERE.name)
    rows = score(name)
    first = HERE.parent / name / "first_look.csv"
    if not first.exists():
        rows.to_csv(first, index=False, quoting=csv.QUOTE_MINIMAL)
    if "--each" in arguments:
        print(rows.to_string(index=False))
    print("first look\n" + summary(pd.read_csv(first, **READ)))
    print("today\n" + summary(rows))
    wrong = rows[~rows["right"]]
    print("first looks of all sets: sure and right\n" + calibration())
    print("named instead:", dict(Counter(zip(wrong["cause"], wrong["named"], strict=True)).most_common(12)))


if __name__ == "__main__":
    main(sys.argv[1:])

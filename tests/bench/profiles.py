"""Show the time of each stage of `make profile`, which the runs recorded.

    python -m tests.bench.profiles RUN --name qwen --what 'Qwen3-like' --goal 105    add the run folder of a profile
    python -m tests.bench.profiles --update-readme                                   write the table into
    reports/README.md

reports/h200-profile/ has runs.csv, a row a run, and stages.csv, a row a stage. `all_s` is from the command to its end,
`own_s` the program by itself.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUT = Path("reports/h200-profile")
README = Path("reports/README.md")
PART = "profiles"
STAGES = ("roofs", "bare", "dataflow", "timeline", "plan", "counters", "report")
RUN = ("run", "what", "all_s", "goal_s", "own_s", "budget_s", "launches", "counted", "time_share", "note")
Row = dict[str, Any]


def read(name: str, folder: Path = OUT) -> list[Row]:
    """Return the rows of runs.csv or stages.csv."""
    with (folder / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def rows_of(run: Path, named: Row) -> tuple[Row, list[Row]]:
    """Return the row of a run folder, and the rows of its stages; the export counts as part of the report."""
    kept = {name: json.loads((run / name).read_text("utf-8")) for name in ("raw/stages.json", "raw/count_plan.json")}
    plan = kept["raw/count_plan.json"]
    seconds = dict.fromkeys(STAGES, 0.0)
    for stage, noted in kept["raw/stages.json"].items():
        seconds["report" if stage == "export" else stage] += noted["seconds"]
    own = {"budget_s": plan["budget_s"], "launches": plan["launches"], "counted": plan["replayed"]}
    own |= {"own_s": seconds["bare"], "time_share": round(plan["time_share"], 2)}
    stages = [
        {"run": named["run"], "stage": stage, "seconds": f"{took:.1f}"} for stage, took in seconds.items() if took
    ]
    return {**dict.fromkeys(RUN, ""), **own, **named}, stages


def add(run: Path, named: Row, folder: Path = OUT) -> None:
    """Add a run to both files; it replaces an earlier run of the same name."""
    row, stages = rows_of(run, named)
    for name, columns, new in (("runs.csv", RUN, [row]), ("stages.csv", ("run", "stage", "seconds"), stages)):
        rows = [one for one in read(name, folder) if one["run"] != named["run"]]
        with (folder / name).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows([*rows, *new])


def shown_in(readme: str, folder: Path = OUT) -> str:
    """Return the text of a README with the runs of `folder` in its generated part: a column for each run, and notes."""
    from tabulate import tabulate

    from studies.publish.results import replace_part

    runs = read("runs.csv", folder)
    took = {(row["run"], row["stage"]): float(row["seconds"]) for row in read("stages.csv", folder)}
    table = [[stage, *(_whole(took.get((run["run"], stage))) for run in runs)] for stage in STAGES]
    table.append(["**all**", *(f"**{float(run['all_s']):.0f}**" for run in runs)])
    table.append(["goal", *(_goal(run) for run in runs)])
    table.append(["budget for ncu", *(_whole(run["budget_s"]) for run in runs)])
    table.append(["launches counted", *(f"{int(run['counted']):,} of {int(run['launches']):,}" for run in runs)])
    table.append(["their GPU time", *(f"{float(run['time_share']):.0%}" for run in runs)])
    text = tabulate(table, ["seconds", *(run["what"] for run in runs)], tablefmt="github", disable_numparse=True)
    notes = "\n".join(f"- {run['what']}: {run['note']}" for run in runs if run["note"])
    return replace_part(readme, PART, f"{text}\n\n{notes}")


def _goal(run: Row) -> str:
    if not run["goal_s"]:
        return "–"
    missed = float(run["all_s"]) > float(run["goal_s"])
    return f"≤ {run['goal_s']}{', **missed**' if missed else ''}"


def _whole(value: Any) -> str:
    return "–" if value in (None, "") else f"{float(value):.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiles", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", metavar="RUN")
    parser.add_argument("--name", default="")
    parser.add_argument("--what", default="", help="head of its column")
    parser.add_argument("--seconds", default="", metavar="S", help="from the command to its end")
    parser.add_argument("--goal", default="", metavar="S")
    parser.add_argument("--note", default="")
    parser.add_argument("--update-readme", action="store_true")
    options = parser.parse_args(arguments)
    if options.folder:
        if not (options.name and options.what and options.seconds):
            parser.error("--name, --what and --seconds say which run that is and what it took")
        named = {"run": options.name, "what": options.what, "all_s": options.seconds}
        named |= {"goal_s": options.goal, "note": options.note}
        add(options.folder, named)
    if options.update_readme:
        README.write_text(shown_in(README.read_text("utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))

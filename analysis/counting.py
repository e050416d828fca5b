"""Plan which launches Nsight Compute replays, from the timeline that Nsight Systems recorded.

python -m analysis.counting CAPTURES --budget 60    write count_plan.csv there, and raw/count_plan.json beside it
python -m analysis.counting --learn RUN             note how long the capture of RUN took, for the next plan

CAPTURES is a run folder, or its folder captures/ with the exports of nsys. `nsys_scripts/ncu_capture.sh --plan
RUN/raw/count_plan.json` then captures with the plan. The file capture_costs.json in the cache folder notes how long
captures took on this machine. The cache folder is `kernel-ledger` below $XDG_CACHE_HOME; KERNEL_LEDGER_CACHE names
another, or `off`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.formats import place, writing
from analysis.formats.console import documented
from analysis.formats.counting import COST_RUNS, COSTS, COUNT_PLAN, SELECTION
from analysis.formats.errors import InputError, LedgerError, UsageError
from analysis.formats.words import count_of, share
from analysis.formats.writing import read_json, write_json
from analysis.planning import BUDGET_S

if TYPE_CHECKING:
    import pandas as pd

    from analysis.capture.model import Capture
    from analysis.planning.cost import Cost
    from analysis.planning.ranks import OneRank
    from analysis.planning.select import Choice

_PROFILED = re.compile(r"^==PROF== Profiling .* - (\d+) pass(?:es)?\s*$", re.MULTILINE)


def _folder(given: Path) -> Path:
    """Return the folder with the captures: captures/ below the given folder, else the folder itself.

    Raises: InputError if it does not exist.
    """
    folder = given / "captures" if (given / "captures").is_dir() else given
    if not folder.is_dir():
        raise InputError(f"{given} is not a folder: give a run folder, or the folder of its captures.")
    return folder


def _costs_file() -> Path | None:
    folder = place.cache()
    return None if folder is None else folder / COSTS.name


def _earlier() -> list[dict[str, Any]]:
    """Return the earlier captures on this machine (`runs` of COSTS); [] if the file is absent or damaged."""
    path = _costs_file()
    try:
        return [] if path is None else list(COSTS.check(read_json(path), path.name)["runs"])
    except InputError:
        return []


def launches_of(captures: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the launches of a timeline with their groups, and its ranges.

    Raises:
        InputError: the folder holds no timeline with kernels.
    """
    return _timeline_of(captures)[:2]


def _timeline_of(captures: Path) -> tuple[pd.DataFrame, pd.DataFrame, Capture]:
    """Return the launches of a timeline with their groups, its ranges, and all of its capture.

    Raises:
        InputError: the folder holds no timeline with kernels.
    """
    from analysis.capture.load import load
    from analysis.tables import attribution, groups, join

    capture = load([captures])
    ranges = capture.ranges.reset_index(drop=True)
    ops = capture.gpu_ops.reset_index(drop=True)
    owner = attribution.attribute(ops, ranges)
    launches = join.prepare_launches(ops.assign(owner=owner, path=attribution.paths_of(owner, ranges)))
    if launches.empty:
        raise InputError(
            f"{captures}: its timeline holds no kernel, so there is nothing to count; capture one with nsys."
        )
    return groups.with_groups(launches), ranges, capture


def plan(captures: Path, budget_s: float, steps: Sequence[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the text of count_plan.csv and the content of count_plan.json.

    `steps`: plan only launches inside ranges of these names.

    Raises:
        InputError: there is no timeline, or a range in `steps` has no launches.
    """
    from analysis.planning import cost, ranks, select

    launches, ranges, capture = _timeline_of(captures)
    alone = ranks.one_rank(launches, capture.process_ranks)
    names = {name for path in launches["path"].unique() for name in path.split("/") if name}
    if missing := [name for name in steps if name not in names]:
        there = ", ".join(sorted(names)[:8]) or "none"
        raise InputError(f"--steps {missing[0]} is not a range with launches: use {there}.")
    known = cost.fitted(_earlier(), read_json(captures / "nsys.json").get("seconds"))
    among = None if alone is None else alone.rows
    settled = _settled(capture)
    choice = select.choose(launches, ranges, known, known.within(budget_s), steps, among, settled)
    rows = select.planned_groups(launches, choice, known)
    selection = _selection(launches, rows, choice, known, budget_s, alone)
    if settled:
        of_settled = launches.loc[launches["kernel"].isin(settled), "duration_ns"].sum()
        selection["settled_share"] = round(int(of_settled) / max(int(launches["duration_ns"].sum()), 1), 6)
    return COUNT_PLAN.text(rows), selection


def _settled(capture: Capture) -> set[str]:
    """Return the kernels whose limit the samples of the timeline have told."""
    from analysis.diagnosis.sampled_reasons import settled
    from analysis.facts import Facts

    return settled(Facts(capture)) if capture.samples is not None and len(capture.samples) else set()


def _of_rank(launches: pd.DataFrame, choice: Choice, alone: OneRank | None) -> dict[str, Any]:
    """Return the additional fields of the selection for a program with collectives; {} for other programs.

    They restrict ncu to one GPU, to kernels by name, and to application replay.
    """
    from analysis.planning.ranks import COLUMNS, pattern_of

    if alone is None or not len(choice.rows):
        return {}
    kernels = pattern_of(launches["name"].iloc[choice.rows])
    return {"device": alone.device, "kernels": kernels, "replay": "application", "columns": COLUMNS}


def _selection(
    launches: pd.DataFrame, rows: list[dict[str, Any]], choice: Choice, cost: Cost, budget_s: float,
    alone: OneRank | None,
) -> dict[str, Any]:  # fmt: skip
    counted = sum(row["nsys_time_ns"] for row in rows if row["replayed"])
    return SELECTION.document(
        {
            "include": list(choice.include),
            "invocations": choice.invocations,
            "replayed": len(choice.rows),
            "launches": len(launches),
            "passes": cost.passes,
            "startup_s": round(cost.startup_s, 3),
            "expected_s": round(choice.seconds, 1),
            "budget_s": budget_s,
            "time_share": round(counted / max(int(launches["duration_ns"].sum()), 1), 6),
            **_of_rank(launches, choice, alone),
        }
    )


def write_plan(captures: Path, budget_s: float, steps: str = "") -> str:
    """Write count_plan.csv and count_plan.json of a run, and return what `said` says. `steps`: names, comma-separated.

    Raises: InputError as `plan`.
    """
    table, selection = plan(captures, budget_s, [name for name in steps.split(",") if name])
    writing.write(captures / COUNT_PLAN.name, table)
    write_json(captures.parent / "raw" / SELECTION.name, selection)
    return said(selection)


def said(selection: dict[str, Any]) -> str:
    """Describe the plan in one or two sentences."""
    replayed = f"{selection['replayed']:,} of {count_of(selection['launches'], 'launch')}"
    if selection.get("replay") == "application":
        alone = f" It replays GPU {selection['device']} alone, no collective, and runs the program once for each pass."
    else:
        alone = ""
    if selection.get("settled_share"):
        alone += f" Kernels that take {share(selection['settled_share'])} of it are at a roof by the samples."
    return (
        f"ncu is to replay {replayed}, whose groups take {share(selection['time_share'])} of the GPU time: about "
        f"{selection['expected_s']:.0f} s, of which {selection['startup_s']:.0f} s to start.{alone}"
    )


def learn(run: Path) -> str:
    """Note in capture_costs.json how long the capture of a run folder took. Return a sentence about it.

    Raises:
        InputError: the folder holds no capture that followed a plan.
    """
    from analysis.planning import cost

    selection, status = read_json(run / "raw" / SELECTION.name), read_json(run / "captures" / "ncu.json")
    log = run / "raw" / "ncu.log"
    if not selection or not status.get("seconds") or not log.is_file():
        raise InputError(f"{run} holds no planned capture: run nsys_scripts/ncu_capture.sh --plan first.")
    SELECTION.check(selection, SELECTION.name)
    passes = [int(found) for found in _PROFILED.findall(log.read_text(encoding="utf-8", errors="replace"))]
    this = cost.learnt(selection, passes, float(status["seconds"]))
    path = _costs_file()
    if path is not None and this["pass_s"]:
        write_json(path, COSTS.document({"runs": [*_earlier(), this][-COST_RUNS:]}))
    took = f"in {this['seconds']:.0f} s (planned: {selection['expected_s']:.0f} s)"
    return f"ncu replayed {count_of(len(passes), 'launch')} {took}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: written. 2: wrong usage. 3: no timeline, or unusable input."""
    parser = documented("python -m analysis.counting", __doc__)
    parser.add_argument("folder", type=Path, metavar="CAPTURES", help="run folder, or its folder captures/")
    parser.add_argument(
        "--budget", type=float, default=BUDGET_S, metavar="S", help=f"seconds that ncu may take ({BUDGET_S})"
    )
    parser.add_argument("--steps", default="", metavar="LIST", help="only inside ranges of these names: decode,prefill")
    parser.add_argument("--learn", action="store_true", help="remember what the capture of this run folder took")
    options = parser.parse_args(arguments)
    if options.budget <= 0:
        parser.error("--budget is above 0")
    try:
        if options.learn:
            print(learn(options.folder))
            return 0
        folder = _folder(options.folder)
        if place.IN_CHECKOUT and any(
            folder.resolve().is_relative_to(place.ROOT / one) for one in ("examples", "reports")
        ):
            raise UsageError(f"{options.folder} is a committed capture, which stays as it is; copy it, and plan there.")
        sentence = write_plan(folder, options.budget, options.steps)
        print(f"{sentence} The launches are in {folder / COUNT_PLAN.name}.")
    except LedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    from analysis.formats.console import name_lacking_packages, run_program

    name_lacking_packages()
    sys.exit(run_program(main))

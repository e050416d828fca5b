"""Write docs/wrong.md: each goal that was missed, each hypothesis that was refuted, each bound written too late."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from analysis.page import markdown
from analysis.page.text import cell
from studies.lectures.predict import REFITTED
from studies.publish.committed import filled, looks, plain, read_table, yes
from studies.runs import Runs

FAR = 0.25  # a prediction further off than this share is listed


def render(root: Path, gpus: Sequence[Runs]) -> dict[str, str]:
    """Return {part: text} of docs/wrong.md."""
    missed = [*_of_kernels(gpus), *_of_roofs(gpus), *_of_profiles(root)]
    by_gpu = _joined(_predictions(gpus), 3, "; ")
    predictions = _joined(([study, why, f"{gpu}: {said}"] for study, why, gpu, said in by_gpu), 2, ". ")
    advice, wrong = _joined(_of_advice(root), 2), _joined(_wrong_causes(root), 3)
    return {
        "goals": plain(["goal", "wanted", "found", "where"], missed),
        "looks": plain(["goal", "wanted", "sets that missed it"], advice),
        "causes": plain(["set", "cause", "named first", "programs or kernels"], wrong),
        "rungs": _refuted_rungs(gpus),
        "predictions": plain(["study", "why", "predicted → measured"], predictions),
        "bounds": _late_bounds(root),
    }


def _joined(rows: Iterable[list[str]], keys: int, between: str = ", ") -> list[list[str]]:
    """Return one row for all that have the same first cells, with their last cells in one."""
    found: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        found.setdefault(tuple(row[:keys]), []).append(row[-1])
    return [[*key, between.join(last)] for key, last in found.items()]


def _folders(gpus: Iterable[Runs], part: str) -> Iterator[tuple[str, Path]]:
    for runs in gpus:
        if (folder := runs.folder(part)) is not None:
            yield runs.name.upper(), folder


# --- goals ---


def judged(goals: pd.DataFrame) -> Iterator[tuple[str, str, str, str, str, bool]]:
    """Yield what, asked, shapes that reach it, with their whole interval too, the least ratio, and whether it is met.

    A goal is met if `share` of its shapes reach `least`, and all `never_below`, by their medians.
    """
    for _, of in goals.dropna(subset=["found"]).groupby("goal"):
        worst, share, least = of.loc[of["found"].idxmin()], of["share"].iloc[0], of["least"].iloc[0]
        reach = of["found"] >= least
        asked = f"≥ {least:g}"
        if share < 1:
            asked += f" at {share:.0%} of the shapes, ≥ {worst['never_below']:g} at all"
        found = filled("{found} ({found_p5} – {found_p95}) at {op} {dtype} {shape_name}", worst.to_dict())
        met = bool(reach.mean() >= share and worst["found"] >= worst["never_below"])
        surely = f"{(of['found_p5'] >= least).sum()} of {len(of)}"
        yield str(worst["what"]), asked, f"{reach.sum()} of {len(of)}", surely, found, met


def _of_kernels(gpus: Sequence[Runs]) -> Iterator[list[str]]:
    for gpu, folder in _folders(gpus, "ladder"):
        for what, asked, reach, _, worst, met in judged(read_table(folder, "goals")):
            if not met:
                yield [what, asked, f"{reach} shapes; least {worst}", f"[{gpu}](../kernels/README.md)"]


def _of_roofs(gpus: Sequence[Runs]) -> Iterator[list[str]]:
    for gpu, folder in _folders(gpus, "roofs"):
        rates = read_table(folder, "lecture_roofs").dropna(subset=["datasheet_frac"])
        least = rates.loc[rates["datasheet_frac"].idxmin()]
        reach = f"{(rates['datasheet_frac'] >= 1).sum()} of {len(rates)}"
        found = f"{reach}; least {least['datasheet_frac']:.0%} at {least['case']}"
        yield ["math instructions at the datasheet's rate", "100%", found, f"[{gpu}](../studies/lectures/README.md)"]


def _of_advice(root: Path) -> Iterator[list[str]]:
    """Yield what the first, blind look at each set of the answer key missed: goal, wanted, set and found."""
    for name, table in looks(root, "blind*/screen_first_look.csv").items():
        yield from _missed("first finding names the cause", name, table["right"], 0.9)
        yield from _missed("saving in the stated interval", name, table["inside"], 0.8)
        if harm := table["advised"].notna().sum():
            unharmed = (table["cause"] == "nothing") | table["trap"].notna()
            yield ["advice that wins nothing", "0", f"`{name}` {harm} of {unharmed.sum()}"]
    for name, table in looks(root, "blind*/replay_first_look.csv").items():
        pairs = table[table["counts"] == "yes"]
        yield from _missed("replayed saving within ± 12 % of the step", name, pairs["inside"], 0.85)
        nothing = table[(table["wins_nothing"] == "yes") & table["predicted_low"].notna()]
        small = (nothing["predicted_low"] + nothing["predicted_high"]) / 2 <= 0.03
        yield from _missed("changes that win nothing, predicted to save at most 3 %", name, small, 1.0)
    for name, table in looks(root, "kernels*/first_look.csv").items():
        for metrics, wanted in (("full", 0.9), ("default", 0.85)):
            of = table[table["metrics"] == metrics]
            right = of.loc[of["kind"] == "defect", "right"]
            yield from _missed(f"first cause of a kernel, {metrics} metrics", name, right, wanted)
            for kind in ("clean", "trap"):
                one = of.loc[of["kind"] == kind, "right"]
                yield from _missed(f"{kind} kernels without wrong advice, {metrics} metrics", name, one, 1.0)
    for name, table in looks(root, "blind_measured*/measured_first_look.csv").items():
        blind = table[(table["set"] == name) & (table["counts"] == "yes") & table["predicted"].notna()]
        near = (blind["predicted"] - blind["won"]).abs() <= (0.2 * blind["won"].abs()).clip(lower=0.01)
        yield from _missed("measured slope within 20 % of what was won", name, near, 0.9)
        small = blind.loc[blind["won"] < 0.02, "predicted"] <= 0.02
        yield from _missed("fixes that win nothing, predicted by slopes to win at most 2 %", name, small, 1.0)


def _wrong_causes(root: Path) -> Iterator[list[str]]:
    for name, table in looks(root, "blind*/screen_first_look.csv").items():
        for row in table[table["right"] == "no"].itertuples():
            yield [name, str(row.cause), str(row.first), f"`{row.program}`"]
    for name, table in looks(root, "kernels*/first_look.csv").items():
        last = table[table["kind"] == "defect"].sort_values("metrics").drop_duplicates("kernel", keep="last")
        for row in last[~last["right"]].sort_index().itertuples():
            said = "" if row.metrics == "full" else " (default)"
            named = "nothing" if pd.isna(row.named) else str(row.named)
            yield [name, str(row.cause), named, f"`{row.kernel}`{said}"]


def _missed(what: str, name: str, column: pd.Series, wanted: float) -> Iterator[list[str]]:
    held, total = map(int, yes(column).split(" of "))
    if total and held / total < wanted:
        yield [what, f"{wanted:.0%}", f"`{name}` {held} of {total}"]


def _of_profiles(root: Path) -> Iterator[list[str]]:
    runs = pd.read_csv(root / "reports/h200-profile/runs.csv")
    for row in runs[runs["all_s"] > runs["goal_s"]].itertuples():
        yield [f"`make profile`, {row.what}", f"{row.goal_s:g} s", f"{row.all_s:g} s", "[runs](../reports/README.md)"]
    big = pd.read_csv(root / "tests/bench/big.csv")
    last = big[big["tool"] == "report"].drop_duplicates(["shape", "launches"], keep="last")
    for row in last[last["wall_s"] > last["goal_s"]].itertuples():
        said = f"a report of {row.launches:,} launches, {row.shape}"
        yield [said, f"{row.goal_s:g} s", f"{row.wall_s:g} s", "[speed](../analysis/README.md#speed)"]


# --- hypotheses ---


def _refuted_rungs(gpus: Sequence[Runs]) -> str:
    """Return a line for each part of a hypothesis that a GPU refuted, with what each GPU found."""
    names = [gpu for gpu, _ in _folders(gpus, "ladder")]
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for gpu, folder in _folders(gpus, "ladder"):
        ladder = read_table(folder, "ladder")
        for row in ladder[ladder["verdict"] == "refuted"].itertuples():
            for metric in str(row.verdict_by).split(", "):
                why = next((one for one in str(row.verdict_why).split("; ") if one.startswith(f"{metric} ")), "")
                key = (f"{row.op} {row.dtype}", f"`{row.variant}`", metric)
                found.setdefault(key, {})[gpu] = why.removeprefix(f"{metric} ")
    merged: dict[tuple[str, str, str, str], dict[str, list[str]]] = {}
    for (op, rung, metric), by in sorted(found.items()):
        what, _, shape = metric.partition(" at ")
        for gpu, why in by.items():
            value, _, bound = why.removesuffix(")").partition(" (")
            own = merged.setdefault((op, rung, what, bound), {}).setdefault(gpu, [])
            own.append(f"{value} at {shape}" if shape else value)
    body = [[*key, *(", ".join(by.get(gpu, ["–"])) for gpu in names)] for key, by in merged.items()]
    said = f"{len(found)} parts of hypotheses, of {len({key[:2] for key in found})} variants. "
    said += "A dash: not refuted there, or not measured."
    headers = ["op", "rung", "metric", "bound", *names]
    return f"{said}\n\n{plain(headers, [[markdown.escape_prose(one) for one in row] for row in body])}"


def _predictions(gpus: Sequence[Runs]) -> Iterator[list[str]]:
    for gpu, folder in _folders(gpus, "decode"):
        bounds = read_table(folder, "decode_bounds")
        for row in bounds[bounds["verdict"] == "refuted"].to_dict("records"):
            ratio = filled("{ratio} ({ratio_low} – {ratio_high})", row)
            yield ["one token", "", gpu, f"`{row['rung']}`: {row['bound']} → {ratio}"]
    for gpu, folder in _folders(gpus, "studies"):
        for file in sorted((folder / "tables").glob("lecture_*.csv")):
            yield from _of_study(file.stem.removeprefix("lecture_"), gpu, pd.read_csv(file))
    for runs in gpus:
        if runs.folder("studies") is None and (again := runs.folder("roofs")) is not None:
            for name in REFITTED:
                yield from _of_study(name, runs.name.upper(), read_table(again, f"lecture_{name}"))
    for gpu, folder in _folders(gpus, "multi_gpu"):
        for row in read_table(folder, "multi_gpu").query(f"abs(error_frac) > {FAR}").to_dict("records"):
            what = "{mode} {step}, batch {batch}, {tokens} tokens: {speedup} → {measured_speedup} times"
            yield [f"{row['gpus']} GPUs", "", gpu, filled(what, row)]


def _of_study(study: str, gpu: str, table: pd.DataFrame) -> Iterator[list[str]]:
    """Yield what the first model of a study missed, and what its second one missed of the rows that it had not seen."""
    for row in table[table["verdict"] == "misses"].to_dict("records"):
        low, high, seen = (cell(row[name], "", str(row["unit"])) for name in ("low", "high", "measured"))
        why = "" if pd.isna(row["reason"]) else str(row["reason"])
        said = f"{row['case']}, {row['quantity']}: {low} to {high} → {seen}"
        yield [markdown.escape_prose(one) for one in (study, why, gpu, said)]
    if "half" in table:
        for row in table[(table["half"] == "judge") & (table["second_verdict"] == "misses")].to_dict("records"):
            said, seen = (cell(row[name], "", str(row["unit"])) for name in ("second", "measured"))
            said = f"{row['case']}, {row['quantity']}: {said} → {seen}"
            yield [markdown.escape_prose(one) for one in (f"{study}, second model", "", gpu, said)]


# --- bounds ---


def _late_bounds(root: Path) -> str:
    bounds = pd.read_csv(root / "kernels" / "bounds.csv", keep_default_na=False)
    measured = bounds["measured"] != ""
    written, changed = measured & (bounds["written"] >= bounds["measured"]), bounds["changed"] >= bounds["measured"]
    late = bounds[written | (measured & changed)]
    said = (
        f"Of {len(bounds)} bounds, {len(late)} were written or changed when their metric had been measured: "
        f"{written.sum()} written then, and {len(late) - written.sum()} changed then. "
        f"For {(late['worded'] == 'yes').sum()} of them the rung's sentence had stood before the measurement."
    )
    rows = []
    for row in late.to_dict("records"):
        than = f" over `{row['than']}`" if row["than"] else ""
        day = [row[name][:16].replace("T", " ") for name in ("measured", "written", "changed")]
        values = [f"`{row['metric']}`{than}", row["first"], row["changed_to"] or "–", day[0], day[2] or day[1]]
        where = f"{row['dtype']} {row['shape_name']}".strip()
        rows.append([f"{row['op']} `{row['variant']}`", *values, where])
    headers = ["rung", "metric", "first value", "changed to", "first measured", "written or changed", "where"]
    return f"{said}\n\n{plain(headers, _joined(rows, 6))}"

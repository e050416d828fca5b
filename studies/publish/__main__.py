"""Rewrite the generated parts of this repository's Markdown files, and their figures, from the committed runs.

    python -m studies.publish

A generated part lies between `<!-- begin: NAME -->` and `<!-- end: NAME -->`. reports/published.toml names the runs.
This program reads their committed tables and reports. `make readme` regenerates those first.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis import pipeline
from analysis.api import declared
from analysis.capture.load import load
from analysis.formats.console import guarded
from analysis.formats.errors import InputError
from analysis.formats.multi_gpu import MULTI_GPU
from analysis.formats.run import CEILINGS
from analysis.page import terminal
from studies import runs as published
from studies.accounting.page import render_accounting
from studies.baseline.page import render_baseline
from studies.chains.page import render_chains
from studies.chains.read import compare
from studies.decode import page as decode
from studies.dropin.files import DROPIN
from studies.dropin.page import render_dropin, render_line
from studies.ladder import changed, otherwise
from studies.ladder import figures as ladder_figures
from studies.ladder import page as ladder
from studies.ladder.build import lines_today, read_tables, tables_of
from studies.ladder.claims_page import render_claims
from studies.ladder.dates import dated
from studies.ladder.dates import read as read_bounds
from studies.ladder.read import read_bench, read_elsewhere, usual_copy
from studies.ladder.searched import paired
from studies.layers.page import render_layers
from studies.lectures import page as lectures
from studies.multi_gpu import page as multi_gpu
from studies.multi_gpu import tables as multi_gpu_tables
from studies.publish import examples, tour
from studies.publish.columns import document_columns, document_json
from studies.publish.results import Results, join_gpus, render_goals, render_results, render_summary, replace_part
from studies.runs import Runs
from studies.specimens import score, scorecard

ROOT = Path(__file__).resolve().parents[2]
CPU_RANKS = "cpu-multi-gpu"  # the committed run of several processes without a GPU
PROFILED = "tests/cpu/data/profile/qwen"  # a program of somebody else, as `make profile` captured it
SCREEN_LINES = 45  # of the transcript


class Part(NamedTuple):
    """The text of one GPU for the generated part `name` of a Markdown file."""

    file: str
    name: str
    text: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: written. 2: wrong usage. 3: a run or README is unusable; nothing written."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.publish", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    options = parser.parse_args(arguments)
    return guarded(lambda: write(options.root))


@functools.cache
def transcript() -> str:
    """Return the transcript in README.md: what the report on PROFILED prints on a terminal."""
    capture = load([ROOT / PROFILED])
    built = pipeline.analyse(capture, declared(capture))
    to = terminal.console(io.StringIO(), plain=True)
    to.height = SCREEN_LINES
    paths = [f"runs/qwen-report/report.{suffix}" for suffix in ("html", "md")]
    with to.capture() as printed:
        to.print(terminal.screen(to, built.report, built.tables, paths, PROFILED), crop=False)
    lines = [line.rstrip() for line in printed.get().splitlines()]
    return "\n".join(["```console", f"$ make report RUN={PROFILED}", *lines, "```"])


def write(root: Path) -> int:
    """Write all files that `render` returns, after all of them are rendered. Return 0."""
    for name, text in render(root).items():
        (root / name).write_text(text, encoding="utf-8", newline="\n")
    return 0


def render(root: Path = ROOT) -> dict[str, str]:
    """Return {path under `root`: new text} of every Markdown file with generated parts, and of their figures.

    Raises: InputError if a committed run, a Markdown file or its markers are missing.
    """
    gpus = published.read(root / "reports")
    texts: dict[tuple[str, str], dict[str, str]] = {
        ("README.md", "transcript"): {"": transcript()},
        ("reports/README.md", "runs"): {"": _index(root / "reports")},
        ("analysis/COLUMNS.md", "columns"): {"": document_columns()},
        ("analysis/JSON.md", "json"): {"": document_json()},
    }
    if programs := examples.read(root / "examples"):
        texts["examples/README.md", "examples"] = {"": examples.render(programs)}
    if (chains := root / "examples/h200/chains/captures").is_dir():
        compared = compare(pipeline.analyse(load([chains])).tables)
        texts["examples/README.md", "chains"] = {"": render_chains(compared)}
    if (ratios := root / "reports" / changed.TABLE.name).is_file():
        texts["CHANGELOG.md", "ratios"] = {"": changed.summary(pd.read_csv(ratios))}
    texts |= {("docs/tour.md", name): {"": text} for name, text in _tour(gpus).items()}
    parts, files = _multi_gpu(gpus, root / "reports")
    texts |= {(part.file, part.name): {"": part.text} for part in parts}
    others = _timed_elsewhere(gpus)
    if elsewhere := "\n\n".join(_elsewhere(others)):
        texts["kernels/README.md", "other-gpus"] = {"": elsewhere}
    for place, runs in enumerate(gpus):
        tables = _ladder_tables(runs, root)
        suffix = f"_{runs.name}" if place else ""  # the figures of the first GPU have the plain names
        made = (*_overview(runs, tables, others), *_layers(runs), *_dropin(runs), *_studies(runs), *_decode(runs))
        for part in (*made, *_ladders(runs, tables, suffix, others)):
            texts.setdefault((part.file, part.name), {})[runs.gpu] = part.text
        benches = _benches(runs, tables)
        drawn = ladder_figures.draw_ladders(tables, benches) if tables else {}
        files |= {f"kernels/{name}{suffix}.svg": text for name, text in drawn.items()}
    for (file, name), by_gpu in texts.items():
        files[file] = _with_part(root, file, name, join_gpus(by_gpu), files.get(file))
    return files


def _with_part(root: Path, file: str, part: str, text: str, so_far: str | None) -> str:
    """Return the text of a Markdown file with one part replaced.

    `so_far` is its text after earlier replacements; None reads the file.
    """
    markers = f"`<!-- begin: {part} -->` and `<!-- end: {part} -->`"
    if so_far is None and not (root / file).is_file():
        raise InputError(f"{file} is missing; write it, with {markers} where its tables go")
    try:
        return replace_part(so_far or (root / file).read_text(encoding="utf-8"), part, text)
    except ValueError as error:
        raise InputError(f"{file}: {error}; write {markers}") from None


def _read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _read_report(folder: Path) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Return the committed report of a run: the content of report.json, and its tables by name.

    A checkout lacks the tables that .gitignore names.
    """
    if not (folder / "report.json").is_file():
        raise InputError(f"{folder.name}/report.json is missing; make it with `make readme`")
    report = _read_json(folder / "report.json")
    files = {entry["name"]: folder / entry["file"] for entry in report["tables"]}
    return report, {name: pd.read_csv(file) for name, file in files.items() if file.is_file()}


def _index(reports: Path) -> str:
    """Return the list of the committed runs that have a report."""
    lines = ["| run | what | conditions |", "|---|---|---|"]
    for file in sorted(reports.glob("*/report.json")):
        content = _read_json(file)
        named = {row["name"]: row["value"] for row in content["conditions"]}
        told = "; ".join(
            f"{name} {named[name]}" for name in ("driver", "torch", "nsys", "ncu", "weights") if name in named
        )
        link = f"[{file.parent.name}]({file.parent.name}/report.md)"
        lines.append(f"| {link} | {content['title']} | {told or 'not recorded'} |")
    return "\n".join(lines)


def _overview(runs: Runs, ladder_tables: ladder.Tables, others: Iterable[Timed]) -> Iterator[Part]:
    """Yield the results of one GPU, from its run with counters, its softmax benchmark, GPT-2 with every op, its goals.

    `others` are GPUs without a page of their own.

    Raises: InputError if the GPU has a run with counters and no benchmark.
    """
    folder, bench, ops = runs.folder("overview"), runs.bench("softmax"), runs.folder("gpt2_ops")
    if folder is None:
        return
    if bench is None or not (bench / "bench.csv").is_file():
        missing = f"{runs.reports.name}/{bench.name}/bench.csv" if bench else f"`benches` of {runs.name}"
        raise InputError(f"{missing} is missing; make it with `make bench-softmax` on a GPU")
    report, tables = _read_report(folder)
    tools = {tool: folder / "captures" / f"{tool}.json" for tool in ("nsys", "ncu")}
    with_ops = _read_json(ops / "gpt2.json")["gpt2"] if ops else {}
    results = Results(
        report,
        tables,
        bench=read_bench(bench / "bench.csv"),
        gpt2=_read_json(bench / "bench.json")["gpt2"] or with_ops,
        gpt2_ops=with_ops,
        ladder_goals=ladder_tables.get("goals", pd.DataFrame(columns=["goal"])),
        ladder=ladder_tables.get("ladder", pd.DataFrame()),
        ladder_times=ladder_tables.get("ladder_times", pd.DataFrame()),
        seconds={tool: _read_json(file).get("seconds") for tool, file in tools.items()},
        run=folder.name,
        bench_run=bench.name,
        gpt2_ops_run=ops.name if ops else "",
    )
    yield Part("reports/README.md", "results", render_results(results))
    advice = scorecard.result() if runs.gpu == score.GPU else ""
    elsewhere = {one.runs.gpu: one.tables["goals"] for one in others}
    yield Part("README.md", "results", render_summary(results, advice, _lines(runs), elsewhere))


def _tour(gpus: Sequence[Runs]) -> dict[str, str]:
    """Return the parts of docs/tour.md, from the runs of the first GPU; {} if it lacks one of them."""
    overview, layers = (gpus[0].folder(name) for name in ("overview", "layers"))
    if overview is None or layers is None:
        return {}
    return tour.render_parts(*_read_report(overview), _read_report(layers)[1])


def _layers(runs: Runs) -> Iterator[Part]:
    """Yield the layer profile of one GPU, with the baseline after it."""
    folder = runs.folder("layers")
    if folder is not None:
        report, tables = _read_report(folder)
        text = f"{render_layers(report, tables, folder.name)}\n\n{render_baseline(tables)}"
        yield Part("reports/README.md", "layers", text)


def _settings(runs: Runs) -> list[Any]:
    """Return the measurements of Hugging Face's GPT-2 with our attention on one GPU; [] without such a run."""
    folder = runs.folder("dropin")
    if folder is None:
        return []
    place = f"{runs.reports.name}/{folder.name}/{DROPIN.name}"
    return list(DROPIN.check(_read_json(folder / DROPIN.name), place)["settings"])


def _dropin(runs: Runs) -> Iterator[Part]:
    """Yield the results of Hugging Face's GPT-2 with our attention on one GPU."""
    if (folder := runs.folder("dropin")) is not None:
        yield Part("reports/README.md", "dropin", render_dropin(_settings(runs), f"{folder.name}/{DROPIN.name}"))


def _lines(runs: Runs) -> str:
    """Return README.md's lines on GPT-2: our attention in transformers, one token by our engines, several GPUs."""
    several = runs.folder("multi_gpu")
    shown = [one for one in published.read(runs.reports) if one.gpu == runs.gpu or one.folder("overview") is None]
    tokens = ((one.gpu, one.folder("decode")) for one in shown)
    found = {gpu: _read_report(folder)[1] for gpu, folder in tokens if folder is not None}
    token = decode.render_line(found, _decode_sources(runs))
    ranks = ""
    if several is not None:
        run, ceilings = _run_of_ranks(several)
        ranks = multi_gpu.render_line(multi_gpu_tables.compare(run, ceilings), multi_gpu_tables.judge(run))
    return "\n- ".join(filter(None, [render_line(_settings(runs)), token, ranks]))


def _decode(runs: Runs) -> Iterator[Part]:
    """Yield the times of one GPT-2 token on one GPU, rung by rung."""
    if (folder := runs.folder("decode")) is not None:
        run = f"../../{runs.reports.name}/{folder.name}"
        text = decode.render_decode(_read_report(folder)[1], run, _decode_sources(runs))
        yield Part("kernels/decode/README.md", "decode", text)


def _decode_sources(runs: Runs) -> dict[str, str]:
    """Return what identifies today's kernels of each rung; nothing where a test has no such file."""
    path = runs.reports.parent / "kernels" / "decode" / "sources.toml"
    return tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}


def _studies(runs: Runs) -> Iterator[Part]:
    """Yield the lecture studies of one GPU, one page each, and the comparison of the accounting with that GPU."""
    if (folder := runs.folder("studies")) is not None:
        _, tables = _read_report(folder)
        run = f"{runs.reports.name}/{folder.name}"
        yield Part("studies/lectures/README.md", "studies", lectures.render_summary(tables, f"../../{run}"))
        for name, text in lectures.render_pages(tables, f"../../../{run}").items():
            yield Part(f"studies/lectures/pages/{name}.md", "study", text)
    if (folder := runs.folder("accounting")) is not None:
        _, tables = _read_report(folder)
        text = render_accounting(tables, f"../../{runs.reports.name}/{folder.name}")
        yield Part("studies/accounting/README.md", "accounting", text)


def _run_of_ranks(folder: Path) -> tuple[Any, Any]:
    """Return multi_gpu.json and ceilings.json of a run; {} for one that is not there."""
    files = [folder / "captures" / file.name for file in (MULTI_GPU, CEILINGS)]
    run, ceilings = [_read_json(file) if file.is_file() else {} for file in files]
    return run, ceilings


def _multi_gpu(gpus: Sequence[Runs], reports: Path) -> tuple[list[Part], dict[str, str]]:
    """Return the part and the figures of the study of several GPUs, from the first GPU with a run of it.

    Without such a run, they show predictions only.
    """
    ranks = reports / CPU_RANKS / "captures" / MULTI_GPU.name
    if not ranks.is_file():
        return [], {}
    folder = next((found for runs in gpus if (found := runs.folder("multi_gpu")) is not None), None)
    run, ceilings = _run_of_ranks(folder) if folder else ({}, {})
    text = multi_gpu.render_multi_gpu(run, ceilings, _read_json(ranks))
    return [Part(f"{multi_gpu.FOLDER}/README.md", "multi-gpu", text)], multi_gpu.draw(run, ceilings)


def _ladder_tables(runs: Runs, root: Path) -> ladder.Tables:
    """Return the tables of one GPU's ladders, with today's line numbers of the hottest lines; {} without a ladder."""
    folder = runs.folder("ladder")
    if folder is None:
        return {}
    tables = read_tables(folder)
    return tables | {"ladder": _with_lines_today(tables["ladder"], root)}


def _with_lines_today(rungs: pd.DataFrame, root: Path) -> pd.DataFrame:
    return rungs.assign(hot_line=lines_today(rungs, root / "kernels"))


def _benches(runs: Runs, tables: ladder.Tables) -> dict[str, ladder.Bench]:
    """Return, for each op with a committed benchmark, its times and the benchmark's conditions."""
    found: dict[str, ladder.Bench] = {}
    for op, rows in tables["ladder_times"].groupby("op") if tables else ():
        folder = runs.bench(str(op))
        if folder is not None and (folder / "bench.json").is_file():
            conditions = _read_json(folder / "bench.json")["conditions"]
            rows = paired(rows.reset_index(drop=True), tables.get("searched"))
            found[str(op)] = ladder.Bench(rows, conditions, folder.name, usual_copy(folder / "bench.csv"))
    return found


class Timed(NamedTuple):
    """A GPU without a page of its own: its tables, judged by the ladder of the first GPU, and its benchmarks."""

    runs: Runs
    tables: ladder.Tables
    benches: dict[str, ladder.Bench]


def _timed_elsewhere(gpus: Sequence[Runs]) -> list[Timed]:
    """Return the GPUs with benchmarks whose ladder is not published as a page; none if the first GPU has no ladder."""
    declared, found = gpus[0].folder("ladder"), []
    for runs in gpus[1:]:
        if declared is None or runs.folder("ladder") is not None or not runs.entry.benches:
            continue
        tables = tables_of(read_elsewhere(declared, runs.prefix))
        tables = tables | {"ladder": _with_lines_today(tables["ladder"], runs.reports.parent)}
        found.append(Timed(runs, tables, _benches(runs, tables)))
    return found


def _ladder_of(runs: Runs) -> str:
    """Return the path of the ladder beside the benchmarks of a GPU."""
    return f"{runs.reports.name}/{runs.prefix}ladder"


def _otherwise(runs: Runs, tables: ladder.Tables) -> str:
    """Return the goals of one GPU, counted otherwise."""
    loops = otherwise.read_loops(runs.reports / f"{runs.prefix}checks")
    times = paired(tables["ladder_times"], tables.get("searched"))
    return otherwise.render(otherwise.count(tables["goals"], loops, tables["ladder"], times))


def _elsewhere(others: Iterable[Timed]) -> Iterator[str]:
    """Yield the times of GPUs without a page of their own."""
    for runs, tables, benches in others:
        timed = f"the ops were timed (`{runs.reports.name}/{runs.entry.benches.format(op='*')}`)"
        rungs = tables["ladder"]
        known = rungs.loc[rungs["launches"].notna(), "op"].nunique()
        some = f"rungs of {known} of {rungs['op'].nunique()} were counted (`{_ladder_of(runs)}`)"
        counted = some if known else "nothing was counted"
        yield f"### {runs.gpu}\n\nOn this GPU, {timed}, and {counted}. The page of each op ends with its rungs here."
        yield ladder.render_overview(tables, benches)
        yield "The goals, each over the shapes that were timed on this GPU:"
        yield render_goals(tables["goals"])
        yield _otherwise(runs, tables)
        if searches := ladder.render_searches(tables):
            yield "Baselines that search at every shape, beside our fastest rung in the same run:"
            yield searches


def _ladders(runs: Runs, tables: ladder.Tables, suffix: str, others: Sequence[Timed]) -> Iterator[Part]:
    """Yield the ladders of one GPU: the claims, the overview, then each op's. Names of its figures end in `suffix`.

    `others` are GPUs without a page of their own: each op's rungs there follow its ladder.
    """
    folder = runs.folder("ladder")
    if folder is None:
        return
    benches, where = _benches(runs, tables), f"{runs.reports.name}/{folder.name}"
    claims = render_claims(tables["claims"], tables["ladder"], tables["ladder_runs"], f"../{where}")
    yield Part("kernels/CLAIMS.md", "claims", claims)
    yield Part("kernels/README.md", "ladder", ladder.render_overview(tables, benches))
    yield Part("reports/README.md", "otherwise", _otherwise(runs, tables))
    bounds = dated(read_bounds())
    for one in ladder.folders(tables):
        text = ladder.render_folder(one, tables, benches, where=where, suffix=suffix, bounds=bounds)
        elsewhere = (
            part
            for gpu in others
            for part in ladder.render_elsewhere(one, gpu.tables, gpu.benches, _ladder_of(gpu.runs))
        )
        yield Part(f"kernels/{one}/README.md", "ladder", "\n\n".join((text, *elsewhere)))


if __name__ == "__main__":
    sys.exit(main())

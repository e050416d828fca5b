"""Ask Holistic Trace Analysis what changes save: its critical path with and without what a change takes away.

    python -m venv hta && hta/bin/pip install HolisticTraceAnalysis 'pandas<3'      0.5.0 fails with pandas 3
    python tests/answer_key/rivals.py --traces DIR
    hta/bin/python tests/answer_key/hta_path.py DIR

The replayed steps of a trace become one ProfilerStep, for HTA asks for one. Writes hta.csv.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import tempfile
from pathlib import Path

import networkx as nx
from hta.trace_analysis import TraceAnalysis

HERE = Path(__file__).resolve().parent


def saved(trace: Path, factors: list[tuple[str, float]], begin: float, end: float) -> float:
    """Return the share of the critical path that goes as events whose name matches take a factor of their time."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    document.setdefault("distributedInfo", {"rank": 0, "world_size": 1})
    threads = [one for one in document["traceEvents"] if one.get("cat") == "cuda_runtime" and begin <= one["ts"] < end]
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": begin, "dur": end - begin, "args": {}}
    document["traceEvents"].append(step | {name: threads[0][name] for name in ("pid", "tid")})
    with tempfile.TemporaryDirectory() as where:
        file = Path(where) / "rank0.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        analysis = TraceAnalysis(trace_files={0: str(file)}, trace_dir=where)
        graph, ok = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    assert ok
    before = nx.dag_longest_path_length(graph, weight="weight")
    names = graph.trace_df["name"].map(graph.symbol_table.get_sym_table().__getitem__)
    for pattern, factor in factors:
        for event in names.index[names.map(lambda name, of=pattern: bool(re.search(of, name)))]:
            for edge in graph.get_edges_attributed_to_event(event):
                graph[edge.begin][edge.end]["weight"] *= factor
    return 1 - nx.dag_longest_path_length(graph, weight="weight") / before


def main() -> int:
    """Write the saving of each program of a folder."""
    rows = []
    for file in sorted(Path(sys.argv[1]).glob("*.change.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        trace = file.with_name(file.name.replace(".change.", ".trace."))
        try:
            share = saved(trace, told["factors"], *told["bounds_us"])
        except Exception as error:  # HTA cannot read it: a pair without its answer
            print(told["program"], type(error).__name__, error, file=sys.stderr)
            continue
        rows.append((told["program"], f"{share:.4f}"))
        print(*rows[-1], flush=True)
    with (HERE / "hta.csv").open("w", encoding="utf-8", newline="") as target:
        csv.writer(target, lineterminator="\n").writerows([("program", "saves"), *rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())

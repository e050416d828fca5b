"""Ask Holistic Trace Analysis what a change saves: its critical path with and without what the change drops.

    python -m venv hta && hta/bin/pip install HolisticTraceAnalysis 'pandas<3'      0.5.0 fails with pandas 3
    hta/bin/python tests/answer_key/hta_path.py TRACE PROGRAM REGEX BEGIN END

TRACE is a trace of torch.profiler; BEGIN and END bound its steady steps, in µs of the trace. The steps become one
ProfilerStep, for HTA asks for one. Writes hta.csv.
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


def saved(trace: Path, pattern: str, begin: float, end: float) -> float:
    """Return the share of the critical path that goes with the events whose name matches."""
    document = json.loads(trace.read_text(encoding="utf-8"))
    document.setdefault("distributedInfo", {"rank": 0, "world_size": 1})
    threads = [one for one in document["traceEvents"] if one.get("cat") == "cuda_runtime"]
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
    for event in names.index[names.map(lambda name: bool(re.search(pattern, name)))]:
        for edge in graph.get_edges_attributed_to_event(event):
            graph[edge.begin][edge.end]["weight"] = 0
    return 1 - nx.dag_longest_path_length(graph, weight="weight") / before


def main() -> int:
    """Write the saving of one program."""
    trace, program, pattern, begin, end = sys.argv[1:]
    share = saved(Path(trace), pattern, float(begin), float(end))
    with (HERE / "hta.csv").open("w", encoding="utf-8", newline="") as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerows([("program", "saves"), (program, f"{share:.4f}")])
    print(program, f"{share:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

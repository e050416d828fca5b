"""Show two runs of a step beside each other, as events of a Chrome trace (Perfetto, chrome://tracing)."""

from __future__ import annotations

from typing import Any

from analysis.replay.simulate import Run


def timeline(before: Run, after: Run) -> dict[str, Any]:
    """Return the operations and calls of two runs as a Chrome trace: one process each, both from time 0. Units: µs."""
    events: list[dict[str, Any]] = []
    for number, (title, run) in enumerate((("before", before), ("after", after)), 1):
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": title}})
        graph = run.graph
        for stream, name in enumerate(graph.stream_names):
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": stream, "args": {"name": name}})
        for seq in range(len(graph.seq_pid)):
            name = f"host {graph.seq_pid[seq]}"
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": -1 - seq, "args": {"name": name}})
        ops = zip(graph.o_name, graph.o_stream, run.o_start, run.o_end, strict=True)
        calls = zip(graph.c_name, -1 - graph.c_seq, run.c_begin, run.c_end, strict=True)
        for name, track, begin, end in [*ops, *calls]:
            if end > begin:
                event = {"ph": "X", "name": str(name), "pid": number, "tid": int(track)}
                events.append(event | {"ts": (begin - run.begin_ns) / 1e3, "dur": (end - begin) / 1e3})
    return {"traceEvents": events, "displayTimeUnit": "ns"}

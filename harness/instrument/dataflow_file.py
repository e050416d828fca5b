"""Turn the operations that processes with automatic ranges recorded into captures/dataflow.csv, and the kernels of
torch.compile into captures/inductor.csv.

It takes the process with the most operations, since the ranks of a distributed program do the same work. The least work
of a range, which later ranges show, is that of all processes that have the range, if they agree.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from analysis.formats.inductor import INDUCTOR
from analysis.formats.ranges import WORK, work_text
from analysis.formats.run import DATAFLOW


def agreed_work(found: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the path of a range -> its known numbers: those that no process denies. FLOPs of none are not shown."""
    agreed: dict[str, list[int | None]] = {}
    for one in found:
        for path, numbers in one.get("work", {}).items():
            before = agreed.get(path, numbers)
            agreed[path] = [first if first == second else None for first, second in zip(before, numbers, strict=True)]
    known = {path: {n: one for n, one in zip(WORK, numbers, strict=True) if one} for path, numbers in agreed.items()}
    return {path: work for path, work in known.items() if work}


def main(arguments: list[str] | None = None) -> int:
    """Command line, used by the driver. Exit code 1 if nothing was recorded."""
    parser = argparse.ArgumentParser(prog="python -m harness.instrument.dataflow_file", description=__doc__)
    parser.add_argument("folder", type=Path, help="what the processes wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the captures")
    parser.add_argument("--work", type=Path, help="file for the least work of each range")
    options = parser.parse_args(arguments)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.folder.glob("dataflow-*.json"))]
    best: dict[str, Any] = max(found, key=lambda one: len(one["rows"]), default={"rows": [], "compiled": False})
    for file in (DATAFLOW, INDUCTOR):
        (options.out / file.name).unlink(missing_ok=True)
    if options.work:
        options.work.write_text(work_text(agreed_work(found)), encoding="utf-8")
    calls: list[Any] = max((one.get("inductor", []) for one in found), key=len, default=[])
    if calls:
        (options.out / INDUCTOR.name).write_text(INDUCTOR.text(calls), encoding="utf-8")
        print(f"{len(calls):,} calls of kernels in {len({call[0] for call in calls})} graphs of torch.compile.")
    if not best["rows"] and best["compiled"]:
        print("Every step of the program is compiled: its operations are fused already, so there is no dataflow.")
        return 0
    if not best["rows"]:
        print("dataflow failed: no process recorded a step; does the program end by itself?", file=sys.stderr)
        return 1
    text = DATAFLOW.text(best["rows"])
    (options.out / DATAFLOW.name).write_text(text, encoding="utf-8")
    steps = {row[0].partition("/")[0] for row in best["rows"]}
    several = f" of one of {len(found)} processes" if len(found) > 1 else ""
    print(f"{len(best['rows']):,} operands in {len(steps)} kinds of steps{several}: {', '.join(sorted(steps)[:4])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

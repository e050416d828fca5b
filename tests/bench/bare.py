"""Measure the cost of recording a range: run programs with and without the library of nsys_scripts/bare.sh, in turns.

A program opens and closes a range many times; its time for a range is the least of five loops. The cost is the
difference to the same program without the library, in the same turn.

`python -m tests.bench.bare` writes reports/bare-bench/: results.csv and conditions.json. With --update-readme it writes
the committed results into analysis/README.md instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from analysis.formats.spans import quantiles
from tests.bench import results
from tests.bench.readers import conditions as machine

ROOT = Path(__file__).resolve().parents[2]
OUT = Path("reports/bare-bench")
README, PART = Path("analysis/README.md"), "bare-bench"
TURNS, RANGES = 9, 100_000
# A Python program that opens RANGES ranges in each of five loops, and prints the least time of a range in ns for each
# way.
PYTHON = """
import sys, time, nvtx
domain, count = nvtx.get_domain("model"), int(sys.argv[1])
attributes = domain.get_event_attributes(message="layer")
def through_domain():
    for _ in range(count):
        domain.push_range(attributes); domain.pop_range()
def push_range():
    for _ in range(count):
        nvtx.push_range("layer"); nvtx.pop_range()
for way in (through_domain, push_range):
    times = []
    for _ in range(5):
        before = time.perf_counter_ns(); way(); times.append(time.perf_counter_ns() - before)
    print(min(times) / count)
"""

# The same for calls of a module, whose ranges are automatic if the library is loaded.
MODULE = """
import sys, time, torch
class Leaf(torch.nn.Module):
    def forward(self): pass
class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = Leaf()
    def forward(self, count):
        for _ in range(count):
            self.leaf()
count, root, times = int(sys.argv[1]), Root(), []
for _ in range(5):
    before = time.perf_counter_ns(); root(count); times.append(time.perf_counter_ns() - before)
print(min(times) / count)
"""


class Way(NamedTuple):
    """A way to open and close a range, and the cost that it may have, in ns."""

    program: str
    what: str
    goal_ns: float


# In the order in which the programs print them.
WAYS = (
    Way("C", "domain, registered string", 300),
    Way("C", "`nvtxRangePushA`, `nvtxRangePop`", 800),
    Way("Python", "`Domain.push_range(attributes)`, `Domain.pop_range()`", 300),
    Way("Python", '`nvtx.push_range("layer")`, `nvtx.pop_range()`', 800),
    Way("Python", "call of an `nn.Module`, automatic range", 3000),
)


def build(folder: Path) -> tuple[Path, Path]:
    """Build the library with bare.sh, as any user does, and the C program; return both paths."""
    player = folder / "player"
    source = ROOT / "tests" / "nvtx_player.c"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", player, source, "-ldl"], check=True)
    script = [str(ROOT / "nsys_scripts" / "bare.sh"), "--out", str(folder / "run"), "--", str(player), "nested"]
    subprocess.run(script, env=os.environ | {"XDG_CACHE_HOME": str(folder)}, check=True, stdout=subprocess.DEVNULL)
    return next((folder / "kernel-ledger").glob("bare_nvtx-*.so")), player


def times_of(player: Path, ranges: int, library: Path | None, records: Path) -> list[float]:
    """Return the ns a range, in the order of WAYS."""
    environment = dict(os.environ)
    if library:
        environment |= {"NVTX_INJECTION64_PATH": str(library), "KERNEL_LEDGER_BARE": str(records)}
        environment |= {"PYTHONPATH": str(ROOT / "nsys_scripts" / "auto_ranges"), "KERNEL_LEDGER_RANGES": "on"}
    found: list[float] = []
    python = [[sys.executable, "-c", code, str(ranges)] for code in (PYTHON, MODULE)]
    for command in ([str(player), "bench", str(ranges)], *python):
        said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        found += map(float, said.split())
    for file in records.iterdir():
        file.unlink()
    return found


def measure(turns: int, ranges: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row of results.csv for each of WAYS."""
    library, player = build(folder)
    records = folder / "records"
    records.mkdir()
    taken = []
    for _ in range(turns):
        without = times_of(player, ranges, None, records)
        taken.append((without, times_of(player, ranges, library, records)))
    rows = []
    for at, way in enumerate(WAYS):
        without_ns, with_ns = [one[at] for one, _ in taken], [other[at] for _, other in taken]
        low, middle, high = quantiles([after - before for before, after in zip(without_ns, with_ns, strict=True)])
        rows.append(
            {
                "program": way.program,
                "way": way.what,
                "turns": turns,
                "without_ns": round(quantiles(without_ns)[1], 1),
                "with_ns": round(quantiles(with_ns)[1], 1),
                "added_p5_ns": round(low, 1),
                "added_ns": round(middle, 1),
                "added_p95_ns": round(high, 1),
                "goal_ns": way.goal_ns,
            }
        )
    return rows


def table_of(rows: Sequence[dict[str, Any]], tablefmt: str = "simple") -> str:
    """Return the results as a Markdown table."""
    from tabulate import tabulate

    shown = [
        {
            "program": row["program"],
            "a range": row["way"],
            "no library": f"{float(row['without_ns']):,.0f} ns",
            "added (p5 – p95)": "{:,.0f} ns ({:,.0f} – {:,.0f})".format(
                *(float(row[name]) for name in ("added_ns", "added_p5_ns", "added_p95_ns"))
            ),
            "goal": f"≤ {float(row['goal_ns']):,.0f} ns",
            "reached": "yes" if float(row["added_ns"]) <= float(row["goal_ns"]) else "**no**",
        }
        for row in rows
    ]
    return str(tabulate(shown, headers="keys", tablefmt=tablefmt, disable_numparse=True))


def shown_in(readme: str, folder: Path) -> str:
    """Return the text of a README with the results of `folder` in its generated part."""
    from studies.publish.results import replace_part

    rows, seen = results.read(folder)
    told = f"{rows[0]['turns']} turns; {seen['cores']} cores of {seen['cpu']}, python {seen['python']}, nvtx {seen['nvtx']}."
    return replace_part(readme, PART, f"{table_of(rows, 'github')}\n\n{told}")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, or write the committed results into the README."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--ranges", type=int, default=RANGES, help="of a loop")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default {OUT}")
    parser.add_argument("--update-readme", action="store_true", help="show the committed results; measures nothing")
    options = parser.parse_args(arguments)
    if options.update_readme:
        README.write_text(shown_in(README.read_text(encoding="utf-8"), OUT), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory(prefix="bare-bench-") as folder:
        rows = measure(options.turns, options.ranges, Path(folder))
    from importlib.metadata import version

    kept = ("cpu", "load_average", "cores", "python")
    seen = (
        {"kind": "bare-bench", "schema_version": 1}
        | {name: machine()[name] for name in kept}
        | {"nvtx": version("nvtx")}
    )
    results.write(options.out, rows, seen)
    print(table_of(rows))
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))

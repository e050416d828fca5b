"""Measure the host's time for a call of our attention inside Hugging Face transformers: only its Python code.

    python -m tests.bench.host [--before COMMIT]    writes reports/host-bench/: results.csv and conditions.json
    python -m tests.bench.host --update-readme      writes them into kernels/README.md; measures nothing

It needs no GPU. A separate program imports the checkout, registers CUDA's implementations for the CPU, and replaces
each compiled kernel by a function that returns a ready tensor. It times the rest, as processor time of the thread:
transformers' entry, our checks, PyTorch's dispatcher and our calls up to the extension. It does not time the extension
itself (its checks, its allocations, the launch). "sdpa" is transformers' entry with PyTorch's function replaced in the
same way, so its dispatch in C++ is not timed either. The masks are real: their tensors are on the CPU.

With --before the same program also runs in the tree of an earlier commit, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import results
from tests.bench.readers import conditions as machine

ROOT = Path(__file__).resolve().parents[2]
OUT = Path("reports/host-bench")
README, PART = Path("kernels/README.md"), "host-bench"
TURNS, CALLS = 7, 500
# This program prints a line for each case: its name, a tab, the ns a call (the least of five loops).
PROGRAM = """
import sys, time, types
import torch
import kernels.library as library
torch.set_num_threads(1)
real = library._library
class OnTheCpu:
    def impl(self, name, function, key, **more):
        if key != "CPU":
            real.impl(name, function, "CPU" if key == "CUDA" else key, **more)
    def __getattr__(self, name):
        return getattr(real, name)
library._library = OnTheCpu()
torch.cuda.current_device = lambda: None
import kernels.integrations.transformers as ours
from kernels import variants
from kernels.layernorm.custom_op import layernorm
from transformers.integrations.sdpa_attention import sdpa_attention_forward
heads, keys, size = 12, 16, 64
def tensor(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)
def view(tokens):  # as a projection of queries, keys and values leaves it
    return tensor(1, tokens, 3 * heads * size)[..., : heads * size].view(1, tokens, heads, size).transpose(1, 2)
class Extension:
    def __init__(self, made):
        self.made = made
    def __getattr__(self, name):
        return lambda *_: self.made
one, many, cache = view(1), view(keys), tensor(1, heads, keys, size)
made = {"attention": tensor(1, heads, keys, size), "attention_decode": tensor(1, heads, 1, size),
        "attention_grouped": tensor(1, 1, heads, size), "layernorm": tensor(1, 1, heads * size)}
variants._modules.update({name: Extension(out) for name, out in made.items()})
torch.nn.functional.scaled_dot_product_attention = lambda *_, **__: made["attention_decode"]
layer = types.SimpleNamespace(is_causal=True, num_key_value_groups=1, training=False)
options = {"dropout": 0.0, "scaling": 0.125, "use_cache": True, "output_attentions": False}
spans = torch.tensor([[[[3, keys, 2**30]]]], dtype=torch.int32)
ones = torch.ones(8, 1024, dtype=torch.bool)
padded = ones.clone()
padded[:4, :9] = False
causal = ours._theirs["causal_mask"]
row, weight = tensor(1, 1, heads * size), tensor(heads * size)
CASES = {
    "attention of one token": lambda: ours.attention_forward(layer, one, cache, cache, None, **options),
    "attention of one token, padded batch": lambda: ours.attention_forward(layer, one, cache, cache, spans, **options),
    "attention of a prompt": lambda: ours.attention_forward(layer, many, many, many, None, **options),
    "sdpa of one token": lambda: sdpa_attention_forward(layer, one, cache, cache, None, **options),
    "op layernorm": lambda: layernorm(row, weight, weight),
    "mask of a forward pass, nothing hidden": lambda: ours.causal_spans(8, 1, 1024, 1023, 0, causal, ones),
    "mask of a forward pass, padded batch": lambda: ours.causal_spans(8, 1, 1024, 1023, 0, causal, padded),
    "mask of a forward pass, static cache": lambda: ours.causal_spans(8, 1, 1024, torch.tensor(9), 0, causal, None),
}
with torch.no_grad():
    for name, call in CASES.items():
        call()
        times = []
        for _ in range(5):
            start = time.thread_time_ns()
            for _ in range(int(sys.argv[1])):
                call()
            times.append((time.thread_time_ns() - start) / int(sys.argv[1]))
        print(name, min(times), sep="\\t")
"""


def times_of(tree: Path, calls: int) -> dict[str, float]:
    """Return case -> ns a call, for the checkout in `tree`."""
    command = [sys.executable, "-c", PROGRAM, str(calls)]
    said = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout
    return {name: float(ns) for name, ns in (line.split("\t") for line in said.splitlines())}


def measure(trees: dict[str, Path], turns: int, calls: int) -> list[dict[str, Any]]:
    """Return a row of results.csv for each case: the median, the least and the largest time of the turns."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for _ in range(turns):
        for name, tree in trees.items():
            taken[name].append(times_of(tree, calls))
    rows = []
    for case in taken["now"][0]:
        row: dict[str, Any] = {"case": case, "turns": turns, "calls": calls}
        for name in ("before", "now"):
            times = sorted(one[case] / 1e3 for one in taken.get(name, []))
            found = (
                [round(value, 2) for value in (statistics.median(times), times[0], times[-1])] if times else [""] * 3
            )
            row |= zip((f"{name}_us", f"{name}_least_us", f"{name}_most_us"), found, strict=True)
        rows.append(row)
    return rows


def table_of(rows: Sequence[dict[str, Any]], tablefmt: str = "simple") -> str:
    """Return the results as a Markdown table."""
    from tabulate import tabulate

    def shown(row: dict[str, Any], name: str) -> str:
        if row[f"{name}_us"] in ("", None):
            return "–"
        middle, low, high = (float(row[f"{name}{column}"]) for column in ("_us", "_least_us", "_most_us"))
        return f"{middle:.1f} µs ({low:.1f} – {high:.1f})"

    lines = [[row["case"], shown(row, "before"), shown(row, "now")] for row in rows]
    head = ["a call", "before, median (least – most)", "now"]
    return str(tabulate(lines, head, tablefmt=tablefmt, disable_numparse=True))


def shown_in(readme: str, folder: Path) -> str:
    """Return the text of a README with the results of `folder` in its generated part."""
    from studies.publish.results import replace_part

    rows, seen = results.read(folder)
    told = f"{rows[0]['turns']} turns of {rows[0]['calls']} calls; {seen['cores']} cores of {seen['cpu']}"
    versions = ", ".join(f"{name} {seen[name]}" for name in ("python", "torch", "transformers"))
    before = f"; before: commit {seen['before']}" if seen["before"] else ""
    return replace_part(readme, PART, f"{table_of(rows, 'github')}\n\n{told}; {versions}{before}.")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, or write the committed results into the README."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.host", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--before", default="", metavar="COMMIT", help="an earlier commit to run beside this checkout")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--calls", type=int, default=CALLS, help="of a loop")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default {OUT}")
    parser.add_argument("--update-readme", action="store_true", help="show the committed results; measures nothing")
    options = parser.parse_args(arguments)
    if options.update_readme:
        README.write_text(shown_in(README.read_text(encoding="utf-8"), OUT), encoding="utf-8")
        return 0
    from importlib.metadata import version

    with tempfile.TemporaryDirectory(prefix="host-bench-") as folder:
        trees = {"now": ROOT}
        if options.before:
            trees = {"before": Path(folder), **trees}
            archive = subprocess.run(
                ["git", "-C", ROOT, "archive", options.before, "kernels"], check=True, capture_output=True
            )
            subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        rows = measure(trees, options.turns, options.calls)
    seen = {"kind": "host-bench", "schema_version": 1, "before": options.before}
    seen |= {name: machine()[name] for name in ("cpu", "load_average", "cores", "python")}
    seen |= {name: version(name) for name in ("torch", "transformers")}
    results.write(options.out, rows, seen)
    print(table_of(rows))
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))

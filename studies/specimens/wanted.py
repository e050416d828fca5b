"""List the parts of the answer key that still need a capture.

    python -m studies.specimens.wanted            print the specimens without full sections, the holdout first
    python -m studies.specimens.wanted --rungs    print points.csv of the rungs whose advice is scored

Slow and clean specimens need full sections. Fixed twins do not, because no rule judges them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pandas as pd

from kernels.specimens import registry
from studies import runs as published
from studies.ladder.files import POINTS
from studies.specimens import score

MANIFEST = score.CAPTURES / "manifest.json"


def without_sections() -> list[str]:
    """Return the slow and clean specimens without full sections, the holdout first, which nobody has looked at."""
    known = set(json.loads(MANIFEST.read_text("utf-8"))["full_sections"])
    order = {half: place for place, half in enumerate((registry.HOLDOUT, *registry.HALVES))}
    names = [one for one in registry.specimens() if one.version != "fixed" and one.name not in known]
    return [one.name for one in sorted(names, key=lambda one: order[one.half])]


def rungs() -> Iterator[dict[str, object]]:
    """Yield a row of points.csv for each rung whose advice is scored: each one below a rung with a declared cure."""
    table = pd.read_csv(published.folders("ladder")[0] / "tables" / "ladder.csv", dtype={"shape": str})
    table = table[table["at_bench_shape"]].set_index(["op", "variant", "dtype"])
    below = {(one.op, one.below, one.dtype) for one in score.score_ladder()}
    for op, variant, dtype in sorted(below):
        row = table.loc[(op, variant, dtype)]
        values = (op, variant, dtype, row["shape_name"], row["shape"], row["fingerprint"], 0, "yes", "")
        yield dict(zip(POINTS.names, values, strict=True))


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.specimens.wanted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rungs", action="store_true", help="print points.csv of the rungs")
    print(POINTS.text(list(rungs())).strip() if parser.parse_args().rungs else "\n".join(without_sections()))


if __name__ == "__main__":
    main()

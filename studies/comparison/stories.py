"""Tell three changes of this project's programs by their waterfalls.

python -m studies.comparison.stories FOLDER    write FOLDER/tables/stories.csv from FOLDER/stories
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from analysis.comparison.compare import compare
from analysis.page.comparison import judged_line

STORIES = (
    ("softmax v01 → v05", "softmax_v01", "softmax_v05"),
    ("eager → torch.compile", "eager", "static"),
    ("torch.compile, dynamic=False → True", "static", "dynamic"),
)
SHOWN = 6  # bars of a story; the others are summed


def rows(folder: Path) -> Iterator[dict[str, object]]:
    """Yield the total of each story, then its bars; the last one holds all others, so that they add up to the total."""
    for story, a, b in STORIES:
        found = compare([folder / "stories" / a], [folder / "stories" / b])
        step = found.steps[0]
        total = (step.b_ns or 0) - (step.a_ns or 0)
        yield {"story": story, "what": f"step of {(step.a_ns or 0) / 1e3:,.0f} µs", "difference_ns": total,
               "cause": judged_line(step.judged)}  # fmt: skip
        for bar in step.waterfall[:SHOWN]:
            yield {"story": story, "what": bar.what, "difference_ns": bar.ns, "cause": bar.cause}
        rest = total - sum(bar.ns for bar in step.waterfall[:SHOWN])
        yield {"story": story, "what": "all others", "difference_ns": rest, "cause": ""}


def main() -> int:
    """Write stories.csv for the folder that the command line names."""
    if {"-h", "--help"} & set(sys.argv):
        print("usage: python -m studies.comparison.stories FOLDER")
        return 0
    folder = Path(sys.argv[1])
    table = pd.DataFrame(rows(folder))
    table.to_csv(folder / "tables" / "stories.csv", index=False, lineterminator="\n")
    print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())

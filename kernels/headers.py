"""Write the "Expect" part of each source's header from the hypotheses that op.py declares.

If several ops with different hypotheses share a source, the header lists each op. A test compares headers with
declarations.

    python -m kernels.headers    updates the headers that differ, and prints their names
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from kernels.registry import FOLDER, ops

WIDTH = 120
# up to the next heading or the end of the header, which is a comment in a .cu file and the docstring in a Triton file
_EXPECT = re.compile(r"^(// |)Expect .*?(?=^\1\w|^(?!//)#|^\"\"\")", re.MULTILINE | re.DOTALL)


def sources() -> dict[Path, dict[str, str]]:
    """Return every source of a variant, with its expectations by op."""
    found: dict[Path, dict[str, str]] = {}
    for op in ops().values():
        for variant in op.variants.values():
            if variant.source:
                found.setdefault(FOLDER / op.folder / variant.source, {})[op.name] = op.expected(variant.name)
    return found


def expect(by_op: dict[str, str], before: str = "// ") -> str:
    """Return the header lines with the expectation, for each op if a source serves several with different ones."""
    said = list(by_op.values())
    same = len(set(said)) == 1
    text = said[0] if same else "; ".join(f"{op}: {expected}" for op, expected in by_op.items())
    first, later = f"{before}Expect   ", f"{before}         "
    return textwrap.fill(f"{text}. Refuted if not.", WIDTH, initial_indent=first, subsequent_indent=later) + "\n"


def with_expected(source: str, by_op: dict[str, str]) -> str:
    """Return the text of a source with these lines in its header. Raises ValueError if the header has no "Expect"."""
    if not _EXPECT.search(source):
        raise ValueError('the header has no line "Expect": write one, python -m kernels.headers fills it in')
    return _EXPECT.sub(lambda found: expect(by_op, found[1]), source, count=1)


def main() -> int:
    """See the module's docstring."""
    for path, by_op in sources().items():
        before = path.read_text("utf-8")
        after = with_expected(before, by_op)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(path.relative_to(FOLDER.parent))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

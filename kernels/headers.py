"""The "Expect" of each source's header, made of what op.py declares of its variants.

A source that serves several ops says it of each, where they differ. A test holds that headers agree with declarations.

    python -m kernels.headers    writes it into every header that says otherwise, and names those files
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from kernels.registry import FOLDER, ops

WIDTH = 120
# the lines up to the next heading, or the end of the header: in a .cu comments, in a Triton file its docstring
_EXPECT = re.compile(r"^(// |)Expect .*?(?=^\1\w|^(?!//)#|^\"\"\")", re.MULTILINE | re.DOTALL)


def sources() -> dict[Path, dict[str, str]]:
    """Every source that a variant names, with what is expected of it by op."""
    found: dict[Path, dict[str, str]] = {}
    for op in ops().values():
        for variant in op.variants.values():
            if variant.source:
                found.setdefault(FOLDER / op.folder / variant.source, {})[op.name] = op.expected(variant.name)
    return found


def expect(by_op: dict[str, str], before: str = "// ") -> str:
    """The lines of a header that say what is expected; by op where a source serves several that differ."""
    said = list(by_op.values())
    same = len(set(said)) == 1
    text = said[0] if same else "; ".join(f"{op}: {expected}" for op, expected in by_op.items())
    first, later = f"{before}Expect   ", f"{before}         "
    return textwrap.fill(f"{text}. Refuted if not.", WIDTH, initial_indent=first, subsequent_indent=later) + "\n"


def with_expected(source: str, by_op: dict[str, str]) -> str:
    """The text of a source with these lines in its header. Raises ValueError where the header has no "Expect"."""
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

"""The generated parts of Markdown files: text between `<!-- begin: NAME -->` and `<!-- end: NAME -->`."""

from __future__ import annotations

import re


def replace_part(text: str, name: str, content: str) -> str:
    """Return `text` with the part `name` replaced by `content`.

    Raises: ValueError if the markers are not there exactly once.
    """
    pattern = re.compile(rf"(<!-- begin: {re.escape(name)} -->\n).*?(<!-- end: {re.escape(name)} -->)", re.DOTALL)
    new, count = pattern.subn(lambda match: f"{match[1]}\n{content.strip()}\n\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"the markers of the part `{name}` occur {count} times, expected once")
    return new

"""Absolute paths in texts that are fit for the public: removed, or reduced to the name at their end.

nsys_scripts/scrub.py has its own rule: it runs with the Python of a system, and knows the folders that exports name,
since NVTX ranges such as /step/forward are no paths.
"""

from __future__ import annotations

import re

# In running text, to its end: one or two slashes at the start of a word and then a name, a drive with what follows, a
# share, a home folder, a file address.
_ABSOLUTE = re.compile(
    r"(?:\bfile:/|(?<![\w.~/:*)\]>-])//?[A-Za-z_.]|\b[A-Za-z]:[\\/]|(?<![\w\\])\\\\\w|(?<!\w)~[/\w])[^\s\"',;]*"
)
# A file below a folder, on either system. Addresses of the web are no paths.
_FILE = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:[\\/]|~?/)(?:[^\s\"'<>|:;,()\\/]+[\\/])+([^\s\"'<>|:;,()\\/]+)")


def hide_paths(text: str) -> str:
    """`text` with <path> for every absolute path, its name included: for what a user wrote."""
    return _ABSOLUTE.sub("<path>", text)


def without_paths(text: str) -> str:
    """`text` with every absolute path of a file reduced to its name: which file a line stands in is worth knowing."""
    return _FILE.sub(r"\1", text)

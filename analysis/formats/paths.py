"""Remove absolute paths from texts for publication, or reduce them to the file's name.

harness/profile/scrub.py has its own rule. It runs with the system's Python, and it knows the folders that exports name,
since NVTX ranges such as /step/forward are not paths.
"""

import re

# A path in running text, up to its end: one or two slashes at the start of a word and then a name, a drive and the
# rest, a network share, a home folder, or a file address.
_ABSOLUTE = re.compile(
    r"(?:\bfile:/|(?<![\w.~/:*)\]>-])//?[A-Za-z_.]|\b[A-Za-z]:[\\/]|(?<![\w\\])\\\\\w|(?<!\w)~[/\w])[^\s\"',;]*"
)
# A file below a folder, on Unix or Windows. Addresses of the web are not paths.
_FILE = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:[\\/]|~?/)(?:[^\s\"'<>|:;,()\\/]+[\\/])+([^\s\"'<>|:;,()\\/]+)")


def hide_paths(text: str) -> str:
    """Replace every absolute path in `text`, with its file name, by <path>: for texts of users."""
    return _ABSOLUTE.sub("<path>", text)


def without_paths(text: str) -> str:
    """Reduce every absolute path of a file in `text` to the file's name, which readers still need."""
    return _FILE.sub(r"\1", text)

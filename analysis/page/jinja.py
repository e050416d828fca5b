"""Load the templates of this folder, all with the same rules."""

from __future__ import annotations

import functools
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

FOLDER = Path(__file__).parent / "templates"


def template(name: str) -> Template:
    """Return a template by the name of its file."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

"""Load the templates of this folder, all with the same rules."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from jinja2 import Environment, Template

FOLDER = Path(__file__).parent / "templates"


def template(name: str) -> Template:
    """Return a template by the name of its file."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # while another process draws

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["code"] = with_code
    return made


def with_code(said: str) -> Markup:
    """Return a sentence with what stands in backticks as code."""
    parts = [Markup("<code>{}</code>").format(one) if at % 2 else escape(one) for at, one in enumerate(said.split("`"))]
    return Markup("").join(parts) if len(parts) % 2 else escape(said)

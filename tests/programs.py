"""Find the programs and scripts of this project, with their options and help.

A program is a module with `main()` and an argparse parser. `parser_of` imports it and calls `main()` up to the point
where that parses its arguments. A script's help is its header comment.
"""

import argparse
import contextlib
import functools
import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest import mock

from tests.checkout import ROOT, files

_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


class _Parsed(BaseException):
    """Raised instead of parsing."""


@functools.cache
def programs() -> list[str]:
    """Return the files of all programs with a parser, relative to the checkout."""
    found = []
    for name in files("*.py"):
        text = (ROOT / name).read_text("utf-8")
        if "ArgumentParser(" in text and '__name__ == "__main__"' in text and "\ndef main(" in text:
            found.append(name)
    return [name for name in found if Path(name).name not in ("programs.py", "qwen_like.py")]  # the second is profiled


@functools.cache
def scripts() -> list[str]:
    """Return the shell scripts whose header is their help."""
    return [name for name in files("*.sh") if "usage: " in _header(name)]


def _module(file: str) -> ModuleType:
    if not file.startswith("nsys_scripts/"):
        return import_module(file.removesuffix(".py").replace("/", "."))
    spec = importlib.util.spec_from_file_location(f"program_{Path(file).stem}", ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    with mock.patch.object(sys, "path", [str((ROOT / file).parent), *sys.path]):
        spec.loader.exec_module(module)
    return module


@functools.cache
def parser_of(file: str) -> argparse.ArgumentParser:
    """Return the parser of a program."""
    found: list[argparse.ArgumentParser] = []

    def parse(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        found.append(parser)
        raise _Parsed

    module = _module(file)
    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse),
        mock.patch.object(sys, "argv", [file]),
        contextlib.suppress(_Parsed),
    ):
        module.main()
    assert found, f"{file} parses nothing"
    return found[0]


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _parsers(one)


def options_of(file: str) -> set[str]:
    """Return the options of a program."""
    return {option for parser in _parsers(parser_of(file)) for option in parser._option_string_actions}


def _header(file: str) -> str:
    lines = (ROOT / file).read_text("utf-8").splitlines()[1:]
    comments = []
    for line in lines:
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(comments)


def options_of_script(file: str) -> set[str]:
    """Return the options that the header of a script names."""
    return set(_OPTION.findall(_header(file)))


def targets() -> dict[str, str]:
    """Return every target that `make` prints, those of the studies too -> its text."""
    return dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefiles(), re.MULTILINE))


def makefiles() -> str:
    """Return the text of the Makefile, and of the studies' one."""
    return "".join((ROOT / folder / "Makefile").read_text("utf-8") for folder in (".", "studies"))

"""Declare each file that one part of the project writes and another reads, with the meaning of its content.

A declaration names the kind of file, its usual name, its version and the Struct of its content: the object of a JSON
file, or one row of a CSV file. A field's type states its valid values. A field with a default may be absent or null
in a file that is read, because an older version, or a run without it, lacks it. A writer still has to write it,
unless its default is UNSET. A file may hold undeclared fields; they are never read.

    class Roof(Struct):
        name: str
        value: Positive

    class Ceilings(Struct):
        roofs: list[Roof]

    CEILINGS = JsonFile("ceilings", "ceilings.json", Ceilings, again="write it again with `make ceilings`")

A writer calls `CEILINGS.document({"roofs": …})`, a reader `CEILINGS.check(…)`. `every` searches all modules of this
folder for declarations, so a new kind of file needs one module here and its writer.
"""

import csv
import io
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from analysis.formats.errors import InputError

Positive = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
Whole = Annotated[int, Meta(ge=0)]
# A time on the clock of a capture. What happened before the capture began has a negative one.
Moment = Annotated[int, Meta(ge=-(2**62), description="a whole number")]
# A whole number for calculations: in a table it is a float, with NaN for a blank cell.
Quantity = Annotated[int, Meta(ge=0, extra={"dtype": "float64"})]

LARGEST = 1e300  # a larger whole number would not fit a float
_NAMES = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_ABSENT = object()


class Spread(Struct):
    """Quantiles of a positive quantity, in the unit of the field's name."""

    p50: Positive
    p5: Positive | UnsetType = UNSET
    p95: Positive | UnsetType = UNSET


class Misfit(NamedTuple):
    """A field, the value found there (ABSENT: none) and a description of the valid values."""

    field: str
    found: Any
    belongs: str

    @property
    def absent(self) -> bool:
        return self.found is _ABSENT

    def said(self) -> str:
        """has … at … where … belongs"""
        return f"has {shown(self.found)} at {self.field} where {self.belongs} belongs"


def shown(value: Any) -> str:
    """Return the value as JSON, cut after 40 characters."""
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


@dataclass(frozen=True)
class _Type:
    """A field's type: the plain type, Meta's constraints, whether null may be written, whether it may be absent."""

    plain: Any
    meta: Meta
    null: bool
    unset: bool

    @property
    def values(self) -> tuple[str, ...]:
        """Return the values of an enumeration; () for other types."""
        return tuple(self.plain) if isinstance(self.plain, type) and issubclass(self.plain, StrEnum) else ()

    @property
    def words(self) -> str:
        """Return a description of the valid values."""
        if self.meta.description:
            return self.meta.description
        if self.values:
            return f"one of {', '.join(self.values)}"
        name = _NAMES.get(self.plain) or ("a list" if get_origin(self.plain) is list else "an object")
        if self.meta.gt is not None:
            return f"{name} above {self.meta.gt:g}"
        return name if self.meta.ge is None else f"{name} of {self.meta.ge:g} or more"

    def fits(self, value: Any) -> bool:
        """Return whether a scalar value is of this type."""
        if self.plain is Any:
            return True
        if self.values:
            return value in self.values
        if self.plain in (str, bool):
            return isinstance(value, self.plain)
        kinds = (int,) if self.plain is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not -LARGEST < value < LARGEST:
            return False
        above, least = self.meta.gt, self.meta.ge
        return (above is None or value > above) and (least is None or value >= least)


fields = cache(structs.fields)  # which reads the annotations of the class anew at each call


@cache
def _type(annotation: Any) -> _Type:
    meta = Meta()
    if get_origin(annotation) is Annotated:
        annotation, meta = get_args(annotation)[:2]
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    plain = next(part for part in parts if part not in (types.NoneType, UnsetType))
    if get_origin(plain) is Annotated:
        plain, meta = get_args(plain)[:2]
    return _Type(plain, meta, types.NoneType in parts, UnsetType in parts)


def misfits(value: Any, annotation: Any, field: str = "", *, written: bool = False) -> Iterator[Misfit]:
    """Yield every part of `value` that is not of the annotated type; `written`: by the stricter rules for writers."""
    kind = _type(annotation)
    if value is None and kind.null:
        return
    if isinstance(kind.plain, type) and issubclass(kind.plain, Struct):
        yield from _misfits_of_object(value, kind.plain, field, written)
    elif get_origin(kind.plain) is list:
        if not isinstance(value, list):
            yield Misfit(field, value, kind.words)
            return
        for place, item in enumerate(value):
            yield from misfits(item, get_args(kind.plain)[0], f"{field}[{place}]", written=written)
    elif get_origin(kind.plain) is dict:
        if not isinstance(value, dict):
            yield Misfit(field, value, kind.words)
            return
        for name, item in value.items():
            yield from misfits(item, get_args(kind.plain)[1], f"{field}.{name}" if field else name, written=written)
    elif not kind.fits(value):
        yield Misfit(field, value, kind.words)


def _misfits_of_object(value: Any, struct: type[Struct], field: str, written: bool) -> Iterator[Misfit]:
    if not isinstance(value, dict):
        yield Misfit(field, value, "an object")
        return
    for one in fields(struct):
        found = value.get(one.name, _ABSENT)
        left_out = found is _ABSENT and one.default is UNSET if written else found is None or found is _ABSENT
        if one.required or not left_out:
            yield from misfits(found, one.type, f"{field}.{one.name}" if field else one.name, written=written)


def undeclared(value: Any, annotation: Any, field: str = "") -> Iterator[str]:
    """Yield the fields in `value` that the annotated type does not declare."""
    kind = _type(annotation).plain
    if isinstance(value, list) and get_origin(kind) is list:
        for place, item in enumerate(value):
            yield from undeclared(item, get_args(kind)[0], f"{field}[{place}]")
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for name, item in value.items():
            yield from undeclared(item, get_args(kind)[1], f"{field}.{name}")
    elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct):
        known = {one.name: one.type for one in fields(kind)}
        for name, item in value.items():
            if name in known:
                yield from undeclared(item, known[name], f"{field}.{name}")
            elif name not in ("kind", "schema_version"):
                yield f"{field}.{name}".lstrip(".")


def document_fields(struct: type[Struct], place: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (place, type, meaning) of every field of a Struct and of those inside it, such as `findings[].rank`."""
    for one in fields(struct):
        kind, name = _type(one.type), f"{place}{one.name}"
        inner, end = (get_args(kind.plain)[0], "[]") if get_origin(kind.plain) is list else (kind.plain, "")
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield name + end, "a list" if end else "an object", (inner.__doc__ or "").strip().rstrip(".")
            yield from document_fields(inner, f"{name}{end}.")
            continue
        titles = [meta.title for meta in getattr(one.type, "__metadata__", ()) if isinstance(meta, Meta) and meta.title]
        words = "anything" if kind.plain is Any else kind.words
        words += " or null" if kind.null else " or left out" if kind.unset else ""
        yield name, words, titles[0] if titles else ""


@dataclass(frozen=True)
class OurFile:
    """A kind of file of this project.

    kind      its name in a JSON file's field `kind` and in lists of files
    name      its usual file name; readers recognise it by its content
    content   the Struct of its object, or of one of its rows
    again     how to write it again, as the end of a sentence
    alone     whether it is worth a report without any other file
    studies   packages whose tables the report on such a file has, too
    captured  whether it belongs to a capture, so that analysis.capture.load reads it
    version   the version that is written now; versions `oldest` to `version` are read
    """

    kind: str
    name: str
    content: type[Struct]
    again: str
    alone: bool = False
    studies: tuple[str, ...] = ()
    captured: bool = True
    version: int = 1
    oldest: int = 1


@dataclass(frozen=True)
class JsonFile(OurFile):
    """A JSON file: an object with `kind`, `schema_version` and the declared fields."""

    def check(self, data: dict[str, Any], where: str) -> dict[str, Any]:
        """Check the version and the fields of an object, and return it.

        Raises:
            InputError: another schema version, or a field that is absent, of another type or out of range.
        """
        version = data.get("schema_version", _ABSENT)
        whole = isinstance(version, int) and not isinstance(version, bool)
        if not whole or not self.oldest <= version <= self.version:
            read = str(self.version) if self.oldest == self.version else f"{self.oldest} to {self.version}"
            raise InputError(
                f"{where}: has schema_version {shown(None if version is _ABSENT else version)} of {self.kind} where "
                f"{read} is read; {self.again}."
            )
        for misfit in misfits(data, self.content):
            raise InputError(f"{where}: {self.kind} {misfit.said()}; {self.again}.")
        return data

    def document(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the file: `values`, with the kind and the version in front.

        Raises:
            InputError: no reader would accept the values.
        """
        document = {"kind": self.kind, "schema_version": self.version, **values}
        for misfit in misfits(document, self.content):
            raise InputError(f"{self.name} was not written: it {misfit.said()}; report this as a bug.")
        return document


@dataclass(frozen=True)
class Column:
    """A column of a CSV file.

    type     str, int or float
    dtype    of the column in a table of pandas
    blank    whether a cell may be empty
    later    whether older files lack the column
    pattern  a pattern for all its texts ('' for none), and its description in words
    least    the least number
    """

    name: str
    type: type
    dtype: str
    blank: bool
    later: bool
    pattern: str = ""
    words: str = ""
    least: float = 0


@dataclass(frozen=True)
class CsvFile(OurFile):
    """A CSV file with a header. Its header identifies its version.

    renamed  (name of a column in older files, its name today)
    """

    renamed: tuple[tuple[str, str], ...] = ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns in the order of the file."""
        return tuple(_column(one.name, _type(one.type)) for one in fields(self.content))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def header(self) -> str:
        """Return the first line of the file."""
        return ",".join(self.names)

    def has_header(self, line: str) -> bool:
        """Return whether a line is the header of this file, or of an older one."""
        today = dict(self.renamed)
        found = [today.get(name, name) for name in line.split(",")]
        rest = iter(found)
        known = [column.name for column in self.columns if not column.later or column.name in found]
        return known == list(rest)

    def cells(self, row: Mapping[str, object] | Sequence[object]) -> list[object]:
        """Return a row in column order, from a mapping by name (an absent column is blank) or a sequence in order.

        Raises:
            ValueError: there is no such column, or a row is too short or too long.
        """
        if isinstance(row, Mapping):
            if odd := [name for name in row if name not in self.names]:
                raise ValueError(f"{self.name} has no column {odd[0]}")
            return [row.get(name, "") for name in self.names]
        if len(row) != len(self.names):
            raise ValueError(f"{self.name} has {len(self.names)} columns, not {len(row)}")
        return list(row)

    def text(self, rows: Iterable[Mapping[str, object] | Sequence[object]]) -> str:
        """Return the text of the file."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.names)
        writer.writerows(self.cells(row) for row in rows)
        return stream.getvalue()


def _column(name: str, kind: _Type) -> Column:
    dtypes = {str: "str", int: "Int64", float: "float64"}
    dtype = (kind.meta.extra or {}).get("dtype") or dtypes[kind.plain]
    return Column(
        name, kind.plain, dtype, kind.null, kind.unset, kind.meta.pattern or "", kind.words, kind.meta.ge or 0
    )


@cache
def every() -> Mapping[str, JsonFile | CsvFile]:
    """Return every kind of file that a module of this folder declares, by its name."""
    package = __name__.rpartition(".")[0]
    modules = [import_module(f"{package}.{found.name}") for found in iter_modules(import_module(package).__path__)]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, JsonFile | CsvFile)]
    return {one.kind: one for one in dict.fromkeys(declared)}


@cache
def captured() -> Mapping[str, JsonFile | CsvFile]:
    """Return the kinds of file that belong to a capture."""
    return {kind: one for kind, one in every().items() if one.captured}

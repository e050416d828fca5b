"""Read kernels/tuned.toml: the compile-time choices that a sweep recommends for a GPU. kernels.build applies them.

A source is compiled once for all ops, dtypes and shapes, so each recommendation belongs to a source. Its entry lists
the ops, dtypes and shapes that were measured, with their gains, and the unmeasured ones. `KERNEL_LEDGER_TUNED=off`
builds the defaults.
"""

import functools
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent / "tuned.toml"
SWITCH = "KERNEL_LEDGER_TUNED"
_HEAD = """\
# Compile-time choices that a sweep found faster than the defaults of a source, by GPU. The gain is 1 % or more over the
# dtypes and shapes at which all were tried (geometric mean), mostly those of the ladder. At one of them a choice may be
# no faster. At none of the timed ones (`measured`) is it slower: by 1 % in the median, and at all in 95 % of the
# rounds.
# `make sweep OP=… ARGS=--update` writes this file for kernels.build; KERNEL_LEDGER_TUNED=off builds the defaults.
# gain: that geometric mean of the default's time over this choice's; p5 to p95 are over the rounds.
# not_measured: ops, dtypes and shapes that use the source too, and were not timed with the choice. While any are left,
# a rung that an op takes when no variant is named keeps its default.
"""


def read(path: Path = TABLE) -> list[dict[str, Any]]:
    """Return the entries; [] without a file. Raises ValueError, one sentence, for a file of another form."""
    return list(_entries(path.read_text("utf-8"), path.name)) if path.is_file() else []


@functools.lru_cache(maxsize=4)  # a ladder calls this for every variant
def _entries(text: str, name: str) -> list[dict[str, Any]]:
    try:
        entries = tomllib.loads(text).get("tuned", [])
        for entry in entries:
            sound = all(isinstance(entry[name], str) for name in ("gpu", "source")) and all(
                isinstance(value, int) and re.fullmatch(r"[A-Z][A-Z0-9_]*", name)
                for name, value in entry["macros"].items()
            )
            if not sound:
                raise KeyError(entry["source"])
    except (KeyError, TypeError, AttributeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(
            f"kernels/{name} is no table of a sweep ({error}): restore it with git, or set {SWITCH}=off."
        ) from error
    return list(entries)


def flags(place: str, gpu: str = "", path: Path = TABLE) -> list[str]:
    """Return the -D flags of tuned.toml for kernels/<place>, a folder or a file, on the named GPU (default: any)."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return []
    return [
        f"-D{name}={value}"
        for entry in read(path)
        if gpu in ("", entry["gpu"]) and f"{entry['source']}/".startswith(f"{place}/")
        for name, value in sorted(entry["macros"].items())
    ]


def text(entries: Sequence[Mapping[str, Any]]) -> str:
    """tuned.toml with these entries, sorted by GPU and source."""
    parts = [_HEAD]
    for entry in sorted(entries, key=lambda entry: (entry["gpu"], entry["source"])):
        macros = ", ".join(f"{name} = {value}" for name, value in entry["macros"].items())
        lines = ["[[tuned]]", f"gpu = {json.dumps(entry['gpu'])}", f"source = {json.dumps(entry['source'])}"]
        lines += [f"macros = {{ {macros} }}", f"gain = {entry['gain']:.4g}", f"run = {json.dumps(entry['run'])}"]
        lines.append("measured = [")
        for cell in entry["measured"]:
            named = ", ".join(f"{name} = {json.dumps(cell[name])}" for name in ("op", "variant", "dtype", "shape"))
            gains = ", ".join(f"gain_{name} = {cell[f'gain_{name}']:.4g}" for name in ("p5", "p50", "p95"))
            lines.append(f"  {{ {named}, {gains} }},")
        parts.append("\n".join([*lines, "]", f"not_measured = {json.dumps(entry.get('not_measured', []))}"]) + "\n")
    return "\n".join(parts)


def replaced(
    entries: Sequence[Mapping[str, Any]], gpu: str, source: str, macros: Sequence[str], now: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return `entries` with what they say of these macros of a source on a GPU replaced by `now`."""

    def is_of_it(entry: Mapping[str, Any]) -> bool:
        return entry["gpu"] == gpu and entry["source"] == source and set(entry["macros"]) <= set(macros)

    return [*(entry for entry in entries if not is_of_it(entry)), *now]

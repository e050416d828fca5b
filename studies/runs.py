"""Print which committed runs the README files show, one folder a line.

    python -m studies.runs ladder            of every GPU
    python -m studies.runs overview --first  of the first GPU, as the default if nothing was captured here

reports/published.toml names the runs.
"""

import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "reports"
FILE = "published.toml"
BENCHES = "benches.tar.xz"  # folders of benchmarks, packed
PARTS = (
    "overview", "layers", "sweep", "ladder", "dropin", "studies", "accounting", "decode", "multi_gpu",
    "data_parallel", "tensor_parallel", "comparison", "compounds", "roofs", "training", "models",
)  # fmt: skip


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of published.toml: folders in reports/; "" for a part that this GPU lacks."""

    gpu: str
    overview: str = ""
    layers: str = ""
    sweep: str = ""
    ladder: str = ""
    dropin: str = ""
    studies: str = ""
    accounting: str = ""
    decode: str = ""
    multi_gpu: str = ""
    data_parallel: str = ""
    tensor_parallel: str = ""
    comparison: str = ""
    compounds: str = ""
    roofs: str = ""
    training: str = ""
    models: str = ""
    benches: str = ""


@dataclass(frozen=True)
class Runs:
    """The committed runs of one GPU. `name` is a short name of the GPU for files."""

    name: str
    gpu: str
    reports: Path
    entry: _Entry

    def folder(self, part: str) -> Path | None:
        """Return the folder of one of PARTS; None if this GPU lacks it."""
        name = getattr(self.entry, part)
        return self.reports / name if name else None

    def bench(self, op: str) -> Path | None:
        """Return the folder of an op's benchmark, which may not exist; None if published.toml names no benchmarks."""
        name = self.entry.benches.format(op=op)
        return benches(self.reports).get(name, self.reports / name) if name else None


def benches(reports: Path = REPORTS) -> dict[str, Path]:
    """Return {name: folder} of the benchmarks, by name. A folder in BENCHES is unpacked while the process lasts."""
    archive = reports / BENCHES
    places = [Path(_unpacked(archive).name), reports] if archive.is_file() else [reports]
    found = {folder.name: folder for place in places for folder in place.glob("*-bench")}
    return dict(sorted(found.items()))


@cache
def _unpacked(archive: Path) -> tempfile.TemporaryDirectory[str]:
    scratch = tempfile.TemporaryDirectory()
    unpack(archive, scratch.name)
    return scratch


def unpack(archive: Path, folder: str | Path) -> None:
    """Unpack an archive, with the filter for data where Python has it: 3.11.4 and later."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)


def read(reports: Path = REPORTS) -> tuple[Runs, ...]:
    """Return the committed runs by GPU, in the order of published.toml.

    Raises: InputError if the file is missing or malformed.
    """
    file = reports / FILE
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        entries = msgspec.convert(tables, dict[str, _Entry])
    except OSError as error:
        raise InputError(f"{reports.name}/{FILE}: {error.strerror}; it names the committed runs.") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise InputError(f"{reports.name}/{FILE}: {error}; its first lines say what it holds.") from None
    return tuple(Runs(name, entry.gpu, reports, entry) for name, entry in entries.items())


def folders(part: str, reports: Path = REPORTS) -> list[Path]:
    """Return the folders of one of PARTS for every GPU, in the order of published.toml."""
    return [folder for runs in read(reports) if (folder := runs.folder(part)) is not None]


def gpu_of(folder: Path, part: str, reports: Path = REPORTS) -> str | None:
    """Return the GPU whose published run of that part is in this folder; None if there is none."""
    if not (reports / FILE).is_file():
        return None
    found = (runs.gpu for runs in read(reports) if runs.folder(part) == folder.resolve())
    return next(found, None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: printed. 2: wrong usage. 3: published.toml is unusable or lacks the run."""
    parser = documented("python -m studies.runs", __doc__)
    parser.add_argument("part", choices=PARTS, help="what a run holds")
    parser.add_argument("--first", action="store_true", help="only the first GPU's")
    options = parser.parse_args(arguments)
    return guarded(lambda: _print(options.part, options.first))


def _print(part: str, first: bool) -> int:
    found = folders(part)
    if first and not found:
        raise InputError(f"{REPORTS.name}/{FILE}: names no {part}; take one with `make profile`.")
    for folder in found[:1] if first else found:
        print(folder.relative_to(ROOT).as_posix())
    return 0


if __name__ == "__main__":
    sys.exit(main())

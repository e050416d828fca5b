"""Export binary captures of nsys and ncu with NVIDIA's own tools, if this machine has them (--convert)."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from analysis.capture import others
from analysis.formats.errors import InputError

_LONGEST_S = 1800
_PLACES = ("opt/nvidia/nsight-*/*", "usr/local/cuda*", "usr/lib/nsight-*")
# Kind of file, as others.of_binary names it -> the program, the arguments after the path, the suffix of the export.
_STEPS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "an unfinished nsys capture": ("QdstrmImporter", ("-i", "{file}", "-o", "{out}"), ".nsys-rep"),
    "a binary nsys report": (
        "nsys", ("export", "--type", "sqlite", "--force-overwrite", "true", "--output", "{out}", "{file}"), ".sqlite",
    ),
    "a binary ncu report": ("ncu", ("--import", "{file}", "--csv", "--page", "raw", "--log-file", "{out}"), ".csv"),
}  # fmt: skip


def find_program(name: str, root: Path = Path("/")) -> Path | None:
    """Return the path of a program of NVIDIA: from PATH, else the newest one in the folders of NVIDIA's installers."""
    found = shutil.which(name)
    if found:
        return Path(found)
    inside = ("bin", "host-linux-x64", "")
    places = [at / part / name for place in _PLACES for at in root.glob(place) for part in inside]
    return max((path for path in places if os.access(path, os.X_OK) and path.is_file()), default=None)


@contextmanager
def converted(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the paths with each binary capture replaced by its export, and remove the exports afterwards.

    Raises:
        InputError: the tool for a binary capture is missing or cannot export it.
    """
    with ExitStack() as folders:
        yield [_export(path, folders) if path.is_file() else path for path in paths]


def _export(path: Path, folders: ExitStack) -> Path:
    while True:
        with path.open("rb") as stream:
            named = others.of_binary(stream.read(4096), path.name)
        step = _STEPS.get(named[0]) if named else None
        if step is None:
            return path
        path = _run(path, Path(folders.enter_context(TemporaryDirectory(prefix="exports-"))), *step)


def _run(path: Path, folder: Path, name: str, arguments: Sequence[str], suffix: str) -> Path:
    program = find_program(name)
    if program is None:
        raise InputError(
            f"{path.name}: --convert needs {name}, which is not on this machine; install it, or export the file where "
            "it was captured."
        )
    out = folder / f"{path.stem}{suffix}"
    command = [str(program), *(part.format(file=path, out=out) for part in arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, env=os.environ | {"LC_ALL": "C"}, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{path.name}: {name} could not export it ({type(error).__name__}); run it by hand.") from None
    if done.returncode or not out.is_file():
        said = next((line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()), "nothing")
        said = said.replace(str(path), path.name).replace(str(out), out.name)
        raise InputError(
            f"{path.name}: {name} could not export it and said {said[:160]!r}; use the version that captured it, or a "
            "newer one."
        )
    return out

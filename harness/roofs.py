"""Measure the roofs of this machine's GPU once, for all later profiles.

python -m harness.roofs --out DIR    writes ceilings.json and manifest.json
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError
from analysis.formats.run import CEILINGS
from harness import manifest
from harness.console import progress
from kernels.build import BuildError
from kernels.ceilings import measure_ceilings


def measure(out: Path, arguments: Sequence[str]) -> None:
    """Write ceilings.json with time and driver, and manifest.json with the clocks during the measurement.

    Raises: InputError, without a GPU or without a compiler for the micro-kernels.
    """
    if not torch.cuda.is_available():
        raise InputError(
            f"The roofs need a CUDA GPU, and torch {torch.__version__} sees none: ask `python -m harness.doctor` why."
        )
    out.mkdir(parents=True, exist_ok=True)
    progress("measuring the roofs of this GPU")
    try:
        with manifest.ClockSampler() as sampler:
            found = measure_ceilings()
    except BuildError as error:
        raise InputError(
            f"no ceilings.json, so reports have datasheet roofs only: {manifest.first_line(error)}"
        ) from error
    conditions = manifest.build_manifest(arguments, [], 0, {"source": "none"}, sampler)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
    document = CEILINGS.document({**found, "driver": conditions["driver"] or "", "measured": now})
    manifest.write_json(out / CEILINGS.name, document)
    manifest.write_manifest(out / "manifest.json", conditions)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    argv = sys.argv[1:] if argv is None else argv
    parser = documented("python -m harness.roofs", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    out = parser.parse_args(argv).out

    def program() -> int:
        measure(out, argv)
        progress(f"wrote {out}")
        return 0

    return guarded(program, "nothing smaller: the roofs need 6 GB")


if __name__ == "__main__":
    sys.exit(main())

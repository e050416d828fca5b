"""Write docs/screens.md: the first screens of ten programs of the answer key; two have measured slopes.

python tests/answer_key/screens.py
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from score import declared, unpack  # noqa: E402

from analysis import pipeline  # noqa: E402
from analysis.capture.load import load  # noqa: E402
from analysis.formats.measured import MEASURED  # noqa: E402
from analysis.page.markdown import render_terminal  # noqa: E402

FILE = ROOT / "docs" / "screens.md"
PROGRAMS = (
    ("blind_screen_2", "captions_loader"),
    ("blind_screen_2", "policy_rollout"),
    ("blind_screen", "jax_op_by_op"),
    ("blind_screen_2", "cupy_albedo"),
    ("blind_screen_2", "managed_mesh"),
    ("blind_screen_2", "seismic_slabs"),
    ("blind_screen", "tensor_parallel"),
    ("blind_screen_2", "attention_long_clean"),
    ("blind_measured", "weights_cast"),
    ("blind_measured_2", "frames_download"),
)


def screen(name: str, program: str) -> str:
    """Return the first screen of form a of a program: to the end of its findings."""
    with tempfile.TemporaryDirectory() as where:
        folder = unpack(name, program, "h100", Path(where)) / "captures"
        if slopes := json.loads(lzma.decompress((HERE / "measured.json.xz").read_bytes())).get(name, {}).get(program):
            (folder / MEASURED.name).write_text(json.dumps(slopes), encoding="utf-8")
        capture = load([folder])
    shown = render_terminal(pipeline.analyse(capture).report)
    return shown.partition("\nMissing (")[0].strip()


def document() -> str:
    """Return docs/screens.md."""
    parts = [
        "# First screens of ten programs",
        "`python tests/answer_key/screens.py` writes this file. The last two have slopes of measure-fix.",
    ]
    for name, program in PROGRAMS:
        made = declared(name)[program]
        parts += [f"## {program} ({made['framework']})", f"```text\n{screen(name, program)}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")

"""The notebook as it is committed: no outputs, an address only where the project has one. `.ci/notebook` runs it."""

import ast
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "gpt2_fused_softmax.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]


def source(kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == kind]


def test_it_is_committed_without_outputs():
    for cell in CELLS:
        assert set(cell) <= {"cell_type", "id", "metadata", "source", "execution_count", "outputs"}
        assert cell["metadata"] == {}
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert NOTEBOOK.stat().st_size < 60_000


def test_every_cell_of_code_parses():
    for text in source("code"):
        ast.parse(text)


def test_each_section_says_what_to_expect_and_why():
    sections = [text for text in source("markdown") if text.startswith("## ") or "\n## " in text]
    assert len(sections) == 12
    for text in sections[:-1]:
        assert "**Expect**" in text
        assert "**Why:**" in text


def test_files_that_it_shows_are_committed():
    for name in (
        "h200-softmax-bench/microbenchmark.txt",
        "h200-gpt2-ops/gpt2.txt",
        "h200-gpt2-fp32/figures/roofline.png",
        "h200-gpt2-fp32/figures/traffic_op.png",
    ):
        assert (ROOT / "reports" / name).is_file()


def test_a_t4_gets_float16_and_nothing_that_needs_ampere(monkeypatch):
    """The choices of the notebook for a GPU of compute capability 7.5, which this test pretends to have."""
    import torch

    from kernels.integrations import transformers as ours
    from kernels.softmax.op import SOFTMAX

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    assert ours._capability(torch.device("cuda")) == 75
    assert ours.attention_variant(torch.float32, 75) == ""
    assert ours.grouped_variant(torch.float32, 75, 100) == "v01_tiled"
    assert SOFTMAX.best_for(torch.float16) == "v08_half"
    assert SOFTMAX.best_for(torch.float32) == "v05_early"
    scores = torch.randn(1, 2, 9, 9).half()
    from kernels.softmax.custom_op import causal_softmax

    expected = SOFTMAX.reference(scores, 0.125)
    torch.testing.assert_close(causal_softmax(scores, 0.125).double(), expected, rtol=1e-3, atol=1e-7)

"""The Python interface, by the example in analysis/README.md."""

import html
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

import kernel_ledger
from tests.nsys_export import Export

ROOT = Path(__file__).resolve().parents[2]


def waiting_for_the_host(folder: Path) -> Path:
    """Save a timeline of 8 steps of 1 ms: `first` copies for 50 µs, `second` adds for 50 µs, then the host works."""
    export = Export(2025)
    export.gpu()
    for at in range(1_000_000, 9_000_000, 1_000_000):
        export.launch("direct_copy_kernel", (at, at + 5_000), (at + 6_000, at + 56_000))
        export.launch("second", (at + 6_000, at + 11_000), (at + 57_000, at + 107_000))
    return export.save(folder / "x.sqlite")


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> kernel_ledger.Analysis:
    return kernel_ledger.analyse(kernel_ledger.load(waiting_for_the_host(tmp_path_factory.mktemp("api"))))


@pytest.mark.slow
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    section = (ROOT / "analysis" / "README.md").read_text(encoding="utf-8").partition("## From Python\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    waiting_for_the_host(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", found[1].replace('"runs/mine/captures"', '"."').replace('"runs/mine"', '"out"')],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "host" in done.stdout
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize("installed", ["none of the studies", "another study"])
def test_a_capture_of_a_study_that_is_not_installed_says_so(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(package: str) -> None:
        if installed == "none of the studies":
            raise ModuleNotFoundError(package)

    monkeypatch.setattr("analysis.studies.find_spec", find_spec)
    capture = kernel_ledger.load(ROOT / "reports" / "cpu-multi-gpu" / "captures")
    missing = [one for one in kernel_ledger.analyse(capture).report.missing if "does not hold it" in one.why]
    assert [one.what for one in missing] == ["the tables of multi_gpu.json"]


def test_the_report_says_what_ran_and_what_to_do_with_each_kernel(analysis: kernel_ledger.Analysis) -> None:
    report = analysis.report
    assert report.program.wall_ns == 7_107_000  # from the first call on
    (step,) = report.steps
    assert sum(part.ns for part in step.parts) == pytest.approx(step.wall_ns.p50)
    copies, adds = sorted(report.kernels, key=lambda one: one.name)
    assert (copies.name, copies.launches, copies.ns, copies.step) == ("direct_copy_kernel", 1.0, 50_000.0, step.name)
    assert copies.disposition == adds.disposition == "overlap"  # each has one block
    assert {copies.finding, adds.finding} <= {finding.id for finding in report.findings}


def test_tables_figures_and_page_are_at_hand(analysis: kernel_ledger.Analysis, drawn: None) -> None:
    assert set(analysis.tables["kernels"]["kernel"]) == {"direct_copy_kernel", "second"}
    for figure in analysis.report.figures:
        assert "<svg" in analysis.figure(figure.name)
    with pytest.raises(kernel_ledger.LedgerError, match="no figure nothing"):
        analysis.figure("nothing")


def test_an_analysis_and_a_capture_show_themselves(
    analysis: kernel_ledger.Analysis, tmp_path: Path, drawn: None
) -> None:
    shown = analysis._repr_html_()
    assert len(shown) < 8_000
    assert "<script" not in shown
    first = analysis.report.findings[0]
    assert first.title in repr(analysis)
    assert first.title in html.unescape(shown)
    assert 'save("FOLDER") writes the page' in repr(analysis)
    figure = analysis.figure(analysis.report.figures[0].name)
    assert figure._repr_svg_() == figure
    assert len(repr(figure)) < 40
    capture = kernel_ledger.load(waiting_for_the_host(tmp_path))
    assert repr(capture).startswith("Capture of 1 files: 16 GPU operations")
    assert "<td>x.sqlite</td>" in capture._repr_html_()


def test_names_in_a_notebook_are_text(analysis: kernel_ledger.Analysis) -> None:
    evil = "</b><script>alert(1)</script>\u202e\x1b[31m"
    finding = structs.replace(analysis.report.findings[0], title=evil, sentence=evil, do=evil)
    report = structs.replace(analysis.report, title=evil, findings=[finding])
    hostile = replace(analysis, drawn=lambda: (report, {}))
    for shown in (hostile._repr_html_(), repr(hostile)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert "<script" not in hostile._repr_html_()
    assert re.match(r"\d", kernel_ledger.__version__)

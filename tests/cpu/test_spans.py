"""Where a finding shows on the timeline: which stretch, said in which words, and what is drawn of it."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.diagnosis.scenes import MOST_BARS, Scene, scenes_of
from analysis.diagnosis.spans import Span, said
from analysis.formats.report import Report
from analysis.page import markdown, terminal
from analysis.page.canvas import to_svg
from analysis.page.html import render_html
from analysis.page.spans import plot_spans
from tests.declared import DECLARED, facts_of
from tests.nsys_export import Export


def two_steps(*, pids: tuple[int, ...] = (1,)) -> Export:
    """Two steps of two layers in each process, 1 ms apart; in the second layer a long kernel, then a synchronisation."""
    export = Export(2025)
    export.gpu()
    for pid in pids:
        for start in (1_000_000, 2_000_000):
            export.push("step Net", start, start + 600_000, pid=pid)
            for layer in (0, 1):
                at = start + 10_000 + 200_000 * layer
                export.push(f"layers.{layer}", at, at + 150_000, pid=pid)
                export.launch("short", (at + 1_000, at + 6_000), (at + 20_000, at + 25_000), pid=pid, stream=7)
                length = 40_000 + start // 1_000_000 * 10_000 + pid
                export.launch("long", (at + 7_000, at + 9_000), (at + 30_000, at + 30_000 + length), pid=pid, stream=13)
            export.call(start + 500_000, start + 590_000, name="cudaDeviceSynchronize_v3020", pid=pid)
    return export


def made(export: Export, folder: Path) -> pipeline.Built:
    return pipeline.analyse(load([export.save(folder / "x.sqlite")]), DECLARED)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> pipeline.Built:
    return made(two_steps(), tmp_path_factory.mktemp("spans"))


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ("nsys", "Zoom to 1.2000000 s – 1.2001000 s in Nsight Systems: a launch."),
        ("torch", "Look at 0.2000000 s to 0.2001000 s after the first GPU operation: a launch."),
        ("cpu", "Look at 1.2000000 s to 1.2001000 s of the timeline: a launch."),
    ],
)
def test_times_have_a_thousandth_of_the_stretch(clock: str, words: str) -> None:
    assert said(Span(1_200_000_000, 1_200_100_000, "a launch"), clock, 1_000_000_000) == words


@pytest.mark.slow
def test_findings_say_where_they_show_on_every_page(report: pipeline.Built) -> None:
    content, drawn = pipeline.draw(report, only=None)
    tables = report.tables
    spans = [finding.spans[0].said for finding in content.findings]
    assert spans
    assert all(words.startswith("Zoom to ") for words in spans)
    assert tables["spans"]["finding"].tolist() == list(range(1, len(spans) + 1))
    pipeline_figures = {name: image["svg"].decode() for name, image in drawn.items()}
    page = render_html(content, tables, pipeline_figures)
    text = markdown.render_markdown(content, tables)
    plain = markdown.render_terminal(content, width=400)
    lines = "".join(str(part) for part in _lines(content, tables))
    for rank, words in enumerate(spans, start=1):
        assert markdown.escape(words) in text
        assert words in plain
        assert words in page
        assert words in lines
        drawn_once = int(words not in spans[: rank - 1])  # a stretch is drawn for the first finding that it shows
        assert text.count(f"figures/finding_{rank}.svg") == drawn_once
        assert page.count(f'aria-label="finding_{rank}: ') == drawn_once  # in its card, and not with the table again


def _lines(content: Report, tables: dict[str, pd.DataFrame]) -> list[Any]:
    found = []
    for finding in content.findings:
        for part in terminal.finding_lines(finding, content, tables, sentence=True):
            found.append(getattr(part, "renderable", part))
    return found


def drawn(one: Scene) -> list[str]:
    (figure,) = plot_spans(facts_of(built={scenes_of: [one]}), "GPU: none")
    root = ElementTree.fromstring(to_svg(figure.figure))
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_picture_has_ranges_calls_and_streams(report: pipeline.Built) -> None:
    of_step = next(one for one in report.facts.once(scenes_of) if one.after is None)
    labels = [lane.label for lane in of_step.lanes]
    assert labels == ["ranges", "", "CUDA calls", "stream 7", "stream 13"]
    words = drawn(of_step)
    assert {"stream 7", "stream 13", "CUDA calls", "layers.0", "other kernels", "calls that wait or set up"} <= {*words}
    assert of_step.lanes[0].bars.kind == ("range",)


def test_processes_are_told_apart(tmp_path: Path) -> None:
    both = made(two_steps(pids=(1, 2)), tmp_path)
    of_step = next(one for one in both.facts.once(scenes_of) if one.after is None)
    labels = [lane.label for lane in of_step.lanes]
    assert "process 1, stream 7" in labels
    assert "process 2, stream 13" in labels
    assert "CUDA calls of process 2, thread 1" in labels


@pytest.mark.slow
def test_a_crowd_is_drawn_in_few_bars(tmp_path: Path) -> None:
    export = Export(2025)
    export.push("step Net", 0, 10_000_000)
    for at in range(0, 9_000_000, 1_500):
        export.launch("tiny", (at, at + 500), (at + 700, at + 1_400))
    export.launch("one", (9_100_000, 9_100_100), (30_000_000, 30_000_100))
    crowd = made(export, tmp_path)
    bars = [bars for one in crowd.facts.once(scenes_of) for lane in one.lanes for bars in (lane.bars,)]
    assert max(len(one.start) for one in bars) <= 900
    assert any(len(one.start) < MOST_BARS for one in bars)
    for one in bars:
        assert (one.end > one.start).all() or len(one.start) == 0


def launch_bound() -> Export:
    """12 steps, 400 µs apart, of 20 kernels of 3 µs each, which the host launches every 18 µs."""
    export = Export(2025)
    export.gpu()
    for step in range(12):
        at = 1_000_000 + step * 400_000
        export.push("step", at, at + 380_000)
        for begin in range(at + 10_000, at + 370_000, 18_000):
            export.launch("tiny", (begin, begin + 6_000), (begin + 8_000, begin + 11_000))
    return export


def test_a_step_is_drawn_before_and_after_its_change(tmp_path: Path) -> None:
    of_graph = made(launch_bound(), tmp_path).facts.once(scenes_of)[0]
    assert of_graph.title == "Launch the step as one CUDA graph"
    assert [lane.label for lane in of_graph.lanes] == [
        "before: host",
        "before: stream 7",
        "after: host",
        "after: stream 7",
    ]
    assert of_graph.span[:2] == (0, 400_000)
    assert of_graph.after is not None
    rows, length, said_of_it = of_graph.after
    assert rows == 2
    assert length == pytest.approx(20 * (3_000 + 450), rel=0.01)  # kernels, and from the end of a node to the next one
    assert said_of_it == "331 µs less (83%)"
    before, after = of_graph.lanes[1].bars, of_graph.lanes[3].bars
    assert (before.end - before.start).tolist() == [3_000] * 20
    assert after.end.max() <= length
    assert {"time since the step began", "331 µs less (83%)", "before: host", "after: stream 7"} <= {*drawn(of_graph)}


def test_without_a_timeline_there_is_no_stretch() -> None:
    nothing = pipeline.analyse(Capture(), DECLARED)
    assert "spans" not in nothing.tables
    assert nothing.report.findings == []

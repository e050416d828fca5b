"""What report.py prints: one screen on a terminal, text for pipes, JSON for programs; the page of a kernel; hostile names."""

import io
import json
import re
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from rich.cells import cell_len

from analysis import pipeline, report, show
from analysis.capture.load import load
from analysis.formats import packed
from analysis.formats.errors import UsageError
from analysis.formats.files import undeclared
from analysis.formats.report import KERNEL_REPORT, REPORT, Report
from analysis.page import terminal, terminal_kernel
from analysis.tables import picks
from analysis.tables.declare import Table
from tests import committed
from tests.committed import needs_committed
from tests.cpu.test_report import EXEC, NCU, RANGES, TRACE
from tests.declared import DECLARED

COMMITTED = committed.folder("overview")
DECLARED_TABLES = [one for one in DECLARED if isinstance(one, Table)]
EXPORTS = {"trace": TRACE, "exec": EXEC, "ranges": RANGES, "ncu": NCU}
WIDTHS = (60, 100, 200)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """report.json's content and the tables of a capture of some of EXPORTS, with a kernel renamed."""
    known = {}

    def make(*kinds, rename=None):
        key = (kinds, rename)
        if key not in known:
            folder = tmp_path_factory.mktemp("made")
            for kind in kinds:
                (folder / kind).write_text(EXPORTS[kind].replace("add(", f"{rename or 'add'}("))
            built = pipeline.analyse(load([folder]), DECLARED)
            known[key] = built.report, built.tables
        return known[key]

    return make


@pytest.fixture(scope="module")
def gpt2():
    built = pipeline.analyse(load([COMMITTED]), DECLARED)
    return built.report, built.tables


def printed(renderable, width):
    to = terminal.console(io.StringIO(), plain=True)
    to.width = width
    to.print(renderable, crop=False)
    return to.file.getvalue()


def screen(content, tables, width=100, height=50, paths=("runs/mine/report.html",), run="", verbose=False):
    to = terminal.console(io.StringIO(), plain=True)
    to.width, to.height = width, height
    return printed(terminal.screen(to, content, tables, paths, run, verbose), width)


def kernel_page(wanted, content, tables, width=100):
    kernel = show.of_kernel(wanted, content, tables, DECLARED_TABLES, [Path("captures")])
    return printed(terminal_kernel.page(kernel, content, tables, width), width)


# --- the screen ---


@needs_committed
@pytest.mark.parametrize("width", WIDTHS)
def test_the_screen_of_gpt2_fits_the_terminal(gpt2, width):
    content, tables = gpt2
    shown = screen(content, tables, width)
    lines = shown.splitlines()
    assert len(lines) <= 50
    assert not [line for line in lines if cell_len(line.rstrip()) > width]
    assert "✓ The counters passed their self-test" in shown
    for finding in content.findings[:5]:
        assert f"{finding.rank}. {finding.title[:20]}" in shown
        assert finding.do
        assert f"→ {finding.do[:40]}" in shown  # what to do, rather than the evidence
    bars = [line.split()[0] for line in lines if "█" in line]
    assert bars[:5] == ["kernels", "copies", "launching", "bench/gelu/manual", "selftest/gemm_fp32"]
    told = lines[next(at for at, line in enumerate(lines) if line.startswith("Missing (4): ")) : -2]
    assert len(told) <= 3
    assert lines[-1] == "runs/mine/report.html"


@needs_committed
def test_a_low_terminal_gets_less(gpt2):
    high, low = screen(*gpt2, height=70), screen(*gpt2, height=30)
    assert len(high.splitlines()) <= 70
    assert len(low.splitlines()) <= 30
    assert "Launch the step as one CUDA graph" in re.sub(r"\s+", " ", high)
    assert "4. " in high
    assert "4. " not in low
    assert "Kernels (5 of 42)" in high
    assert "Kernels (2 of 42)" in low  # what to do takes up to two lines


@pytest.mark.parametrize(
    ("do", "shown"),
    [
        ("Wait once.", ["Wait once."]),
        ("Wait once, where a result is needed.", ["Wait once, where a", "result is needed."]),
        ("Keep the value on the GPU, and wait once, where a result is needed.", ["Keep the value on", "the GPU, and wait …"]),
    ],
)  # fmt: skip
def test_what_to_do_wraps_once(do: str, shown: list[str]) -> None:
    assert [one.rstrip() for one in printed(terminal.TwoLines(do), 19).splitlines()] == shown


@needs_committed
def test_the_bars_are_drawn_to_scale(gpt2):
    content, tables = gpt2
    top = picks.top_kernels(tables)
    assert top["time_ns"].is_monotonic_decreasing
    assert top["time_ns"].sum() == tables["kernels"]["nsys_time_ns"].sum()
    rows = [line for line in screen(content, tables, 200).splitlines() if re.match(r" \d ", line)]
    bars = [line.count("█") for line in rows]
    assert len(bars) >= 3
    for bar, time in zip(bars, top["time_ns"], strict=False):
        assert abs(bar / bars[0] - time / top["time_ns"].iloc[0]) <= 1 / bars[0]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("trace",), ("ncu",), ("trace", "exec", "ranges"), tuple(EXPORTS)])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_capture_has_a_screen_and_pages(made, kinds, width):
    content, tables = made(*kinds)
    shown = screen(content, tables, width)
    assert "Kernels" in shown
    assert "Missing" in shown
    page = kernel_page("gemm", content, tables, width)
    commands = {text for _, text in show.commands("gemm<4>", 1, ["decode/h.0"], [])}
    assert commands
    for line in page.splitlines():
        assert cell_len(line.rstrip()) <= width or line.startswith(("  ncu", "  python"))


def test_a_report_without_anything_says_so(made):
    content, _ = made("trace")
    empty = msgspec.structs.replace(content, findings=[], tables=[], missing=[], title="")
    shown = screen(empty, {})
    assert shown.splitlines()[0] == "Report"
    assert "No finding" in shown
    with pytest.raises(UsageError, match="no kernel of this report"):
        picks.find_kernel({}, "gemm")


def test_the_commands_of_gaps_name_the_run(made):
    content, tables = made("trace", "exec", "ranges")
    assert "--out runs/mine -- COMMAND" in screen(content, tables, run="runs/mine", verbose=True)
    assert "COMMAND" not in screen(content, tables, run="runs/mine")


# --- the page of a kernel ---


@needs_committed
def test_the_page_of_a_kernel_of_gpt2(gpt2):
    content, tables = gpt2
    shown = kernel_page("2", content, tables)
    for title in (part.title for part in terminal_kernel.PARTS):
        assert title in shown
    assert "24 launches · 3.423 ms" in shown
    assert "registers+shared_mem" in shown
    assert re.search("not_selected +40.6 %", shown)
    assert "ncu did not have to count it (gpt2_fused/prefill/h.*/mlp/proj)" in shown
    assert "the files include no details page of ncu with rules" in shown
    assert "--kernel-id '::regex:^Kernel2$:1'" in " ".join(shown.split())
    reasons = shown[shown.index("Why it takes its time") : shown.index("Where it runs")]
    told = [line.split("  ")[0].strip() for line in reasons.splitlines() if line.startswith("gpt2")]
    assert set(told) == {"gpt2/prefill/h.*/mlp/proj"}  # verdicts have their range; what tables say is of all ranges
    assert reasons.count("\nall ") >= 4


def test_what_is_unknown_says_why_in_its_place(made):
    timing = kernel_page("gemm", *made("trace", "exec", "ranges"))
    assert "– ncu time: there is no ncu export" in timing
    assert re.search(r"Hot lines\n  – there is no ncu export", timing)
    assert re.search(r"h\.\*? +50 ns +1", timing) or "50 ns" in timing
    counted = kernel_page("gemm", *made("ncu"))
    assert "– nsys time: there is no nsys timeline" in counted
    assert "– minimum, measured over minimum, op: there is no ops.csv" in re.sub(r"\s+", " ", counted)
    assert "the ncu export holds no stall metrics" in counted


@needs_committed
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("2", "cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>"),
        ("Kernel2", "cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>"),
        ("SGEMM_256x128", "cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>"),
    ],
)
def test_a_kernel_is_found_by_name_function_part_or_number(gpt2, wanted, found):
    assert picks.find_kernel(gpt2[1], wanted) == found


@needs_committed
def test_a_name_that_means_several_kernels_is_refused(gpt2):
    with pytest.raises(UsageError, match=r"means 4 kernels: give the number of one, by time: 18 \(gemvx"):
        picks.find_kernel(gpt2[1], "gemv")
    with pytest.raises(UsageError, match="have the numbers 1 to "):
        picks.find_kernel(gpt2[1], "999999999999")


def test_reports_of_the_tools_are_reopened_where_they_lie(tmp_path):
    (tmp_path / "run" / "raw").mkdir(parents=True)
    (tmp_path / "run" / "captures").mkdir()
    (tmp_path / "run" / "raw" / "counters.ncu-rep").touch()
    (tmp_path / "run" / "raw" / "timeline.nsys-rep").touch()
    for source in (tmp_path / "run", tmp_path / "run" / "captures"):
        found = [command.split()[0] for _, command in show.commands("a", 1, [], [source])]
        assert found[:3] == ["ncu-ui", "nsys-ui", "ncu"]
    hostile = dict(show.commands("$(x)'; rm", 1, ["a b/`x`"], []))
    assert all("nvtx" not in command for command in hostile.values())


# --- hostile names ---

HOSTILE = {
    "markup": "[red]a[/red] [/] [link=http://x]b",
    "escape codes": "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "bidi": "\u202eabc\u2066def\u200f",
    "64 KB": "K" * 65536,
    "surrogate": "a\ud800b",
    "lines": "a\nb\r\nc\td\x0b\u2028e",
    "wide": "核" * 300,
    "emoji code": ":boom: :smile:",
    "quotes": "\"'`<b>&amp;\\",
    "joiners": "e\u0301" * 50 + "\u200d\u200b",
}


def renamed(content, tables, name):
    """The report with `name` in place of the kernel gemm<4>, the range decode and in every sentence.

    A table of pandas holds no unpaired surrogate.
    """

    def change(value, name=name):
        if isinstance(value, str):
            return value.replace("gemm<4>", name).replace("gemm", name).replace("decode", name)
        if isinstance(value, dict):
            return {key: change(one, name) for key, one in value.items() if key != "tables"} | (
                {"tables": value["tables"]} if "tables" in value else {}
            )
        return [change(one, name) for one in value] if isinstance(value, list) else value

    return msgspec.convert(change(msgspec.to_builtins(content)), Report), {
        key: rows.map(lambda cell: change(cell, name.encode(errors="replace").decode())) for key, rows in tables.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("width", [60, 200])
def test_no_name_breaks_the_terminal(made, name, width):
    content, tables = renamed(*made(*EXPORTS), name)
    kernel = show.of_kernel("1", content, tables, DECLARED_TABLES, [Path(name[:60].encode(errors="replace").decode())])
    shown = screen(content, tables, width) + printed(terminal_kernel.page(kernel, content, tables, width), width)
    shown.encode()
    odd = {letter for letter in shown if unicodedata.category(letter) in {"Cc", "Cf", "Cs"}} - {"\n"}
    assert odd == set()
    fixes = [one.do for one in content.missing]
    for line in shown.splitlines():
        is_command = line.startswith(("  ncu", "  python")) or line.strip() in fixes
        assert cell_len(line.rstrip()) <= width or is_command
    assert len(shown) < 60_000
    if name == HOSTILE["markup"]:
        assert "[red]a[/red]" in shown
    document = json.loads(show.dumped(show.as_document(kernel)))
    assert document["kernel"] == kernel.name
    show.dumped(show.document(content)).encode()


def test_colours_are_the_only_escape_codes(made):
    content, tables = renamed(*made(*EXPORTS), HOSTILE["escape codes"])
    to = terminal.console(io.StringIO(), plain=False)
    to._color_system, to._force_terminal = 1, True
    to.print(terminal.screen(to, content, tables, ["x"]), crop=False)
    written = to.file.getvalue()
    assert "\x1b[1m" in written
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", written)
    assert "\x1b[31mred" not in written


# --- the command line ---


@pytest.fixture
def exports(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for kind, text in EXPORTS.items():
        (folder / kind).write_text(text)
    return folder


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def built(made, monkeypatch):
    """Instead of building a report once more, one that is there."""
    monkeypatch.setattr(
        report, "build", lambda *_, **__: SimpleNamespace(report=made(*EXPORTS)[0], tables=made(*EXPORTS)[1])
    )


def on_terminal(monkeypatch, *arguments):
    stream = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", stream)
    assert report.main([str(argument) for argument in arguments]) == 0
    return stream.getvalue()


def test_a_terminal_gets_the_screen_and_a_pipe_text(built, exports, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert report.main([str(exports), "--out", str(out), "--quiet"]) == 0
    piped = capsys.readouterr().out
    assert f"report: {out}/report.html" in piped
    shown = on_terminal(monkeypatch, exports, "--out", out, "--quiet")
    assert shown != piped
    assert str(out / "report.html") in shown
    assert on_terminal(monkeypatch, exports, "--out", out, "--quiet", "--text") == piped


@pytest.mark.slow
def test_json_is_the_report_and_nothing_else(exports, tmp_path, capsys):
    arguments = [str(exports), "--out", str(tmp_path / "out"), "--quiet", "--json"]
    assert report.main(arguments) == 0
    whole = capsys.readouterr().out
    assert whole == (tmp_path / "out" / "report.json").read_text(encoding="utf-8")


def test_a_kernel_as_json(built, exports, tmp_path, capsys):
    assert report.main([str(exports), "--out", str(tmp_path), "--json", "--kernel", "gemm"]) == 0
    kernel = json.loads(capsys.readouterr().out)
    KERNEL_REPORT.check(kernel, "kernel")
    assert list(undeclared(kernel, KERNEL_REPORT.content)) == []
    assert (kernel["kernel"], kernel["time_ns"], kernel["launches"]) == ("gemm<4>", 50, 1)
    assert kernel["tables"]["kernels"][0]["range"] == "decode/h.0"
    assert kernel["why"]["rules"].startswith("the files include no details page")


def test_a_kernel_that_is_not_there_is_one_sentence(built, exports, tmp_path, capsys):
    assert report.main([str(exports), "--out", str(tmp_path / "out"), "--quiet", "--kernel", "nothing"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("report.py: --kernel nothing: no kernel of this report")


def test_a_number_or_a_name_that_no_kernel_has_is_answered_with_what_there_is(made):
    _, tables = made("trace", "exec", "ranges")
    count = len(picks.top_kernels(tables))
    with pytest.raises(UsageError, match=f"have the numbers 1 to {count}, by time"):
        picks.find_kernel(tables, str(count + 1))
    with pytest.raises(UsageError, match="no kernel of this report has that name; gemm is like it; tables"):
        picks.find_kernel(tables, "gemn")


def test_only_and_the_forms_exclude_each_other(capsys):
    for arguments in (["--only", "roofline", "--json"], ["--text", "--json"], ["--only", "fusion", "--kernel", "a"]):
        with pytest.raises(SystemExit) as stop:
            report.main(arguments)
        assert stop.value.code == 2
    assert "--only" in capsys.readouterr().err


@pytest.mark.parametrize(
    "place", sorted(path.parent.name for path in committed.published.REPORTS.glob("*/report.json*"))
)
def test_committed_reports_are_what_is_declared(place):
    content = json.loads(packed.read_bytes(packed.find(committed.published.REPORTS / place / "report.json")))
    REPORT.check(content, place)
    assert list(undeclared(content, REPORT.content)) == []


def test_every_report_is_what_is_declared(made):
    for kinds in (("trace",), ("ncu",), tuple(EXPORTS)):
        content = json.loads(show.dumped(show.document(made(*kinds)[0])))
        REPORT.check(content, "report.json")
        assert list(undeclared(content, REPORT.content)) == []

"""The pages of a report: hostile names, missing numbers, distrust, and the same text every time."""

import copy
import html
import html.parser
import itertools
import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec import convert

from analysis.formats.report import Report
from analysis.page import data, markdown, text
from analysis.page import html as page_html
from analysis.page.html import STATIC_ROWS
from analysis.page.markdown import as_code, escape, escape_prose
from tests.declared import TABLES

NAN = float("nan")
HOSTILE = (
    "<script>alert(1)</script>",
    "</style></script><img src=x onerror=alert(1)>",
    'a"onmouseover="alert(1)\' | b`c`',
    "核函数 🦙 ядро",
    "void k<" + "x" * 5000 + ">",
    "line\nbreak\x00\x1b[31m\u202eevil",
    "{{ 7 * 7 }} {% raw %} __init__ *b* [l](u) ~s~ $1$",
)
VOID = {"meta", "link", "input", "br", "img", "hr"}


def tables(names: tuple[str, ...] = ("ampere_sgemm", "softmax_v03")) -> dict[str, pd.DataFrame]:
    kernels = pd.DataFrame({"kernel": names, "range": [f"gpt2/{n}" for n in names]})
    kernels = kernels.assign(grid="1x1x1", block="128x1x1", launches=12, nsys_time_ns=140_900, ncu_time_ns=NAN)
    kernels = kernels.assign(share_frac=0.25, registers=pd.array([pd.NA] * len(names), dtype="Int64"))
    kernels = kernels.assign(occupancy_theoretical_frac=0.5, occupancy_achieved_frac=np.nan, tier="counters")
    layers = pd.DataFrame({"range": names, "calls": 1, "cpu_time_ns": 2e6, "gpu_time_ns": 1e6})
    layers = layers.assign(gpu_self_time_ns=1e6, launches=3, share_frac=0.5, tier="timing")
    roofline = pd.DataFrame({"kernel": names, "range": "r", "level": "dram", "flops": 1e9, "bytes": 1e8})
    roofline = roofline.assign(intensity_flop_per_byte=10.0, achieved_flop_per_s=1e12, roof_flop_per_s=NAN)
    roofline = roofline.assign(roof_datasheet_flop_per_s=NAN, roof_frac=NAN, bound=None, tier="counters")
    roofline = roofline.assign(achieved_byte_per_s=1e11, bandwidth_frac=NAN)
    stalls = pd.DataFrame({"kernel": names * 2, "range": "r", "reason": ["wait"] * len(names) + ["drain"] * len(names)})
    stalls = stalls.assign(share_frac=[0.2] * len(names) + [0.8] * len(names), family="counters", tier="counters")
    traffic = pd.DataFrame({"range": names, "op": "softmax", "variant": names, "minimum_bytes": 5e7})
    traffic = traffic.assign(predicted_unfused_bytes=4e8, predicted_fused_bytes=5e7, dram_read_bytes=NAN)
    traffic = traffic.assign(dram_write_bytes=NAN, l2_bytes=NAN, measured_over_minimum=NAN, tier="static")
    gaps = pd.DataFrame({"step": names, "wall_ns": 9_100_000, "bare_wall_ns": NAN, "busy_ns": 897_000})
    gaps = gaps.assign(
        bare_gpu_ns=NAN,
        blocked_ns=NAN,
        launches=248,
        largest_gaps_ns="120000;90000",
        verdict=None,
        evidence="",
        tier="timing",
    )
    return {
        "layers": layers,
        "layers_folded": layers.copy(),
        "kernels": kernels,
        "roofline": roofline,
        "stalls": stalls,
        "traffic": traffic,
        "gaps": gaps,
    }


def report(
    status: str = "trusted", name: str = "ampere_sgemm", of: dict[str, pd.DataFrame] | None = None
) -> dict[str, Any]:
    def listed(n: str, t: pd.DataFrame) -> dict[str, Any]:
        return TABLES[n].entry(t)

    evidence = [
        {"table": "kernels", "row": {"kernel": name}, "column": "occupancy_achieved_frac", "value": 0.5,
         "evidence": "counters"},
        {"table": "layers_folded", "row": {"range": name}, "column": "gpu_time_ns", "value": 140_900},
    ]  # fmt: skip
    finding = {"id": "fuse", "rank": 1, "kind": "fuse", "title": f"Fuse {name}", "sentence": f"{name} waits."}
    finding |= {"do": "Fuse.", "saves_ns": {"low": None, "high": 746_000}}
    check = {"name": name, "unit": "byte", "expected": 1e9, "measured": 1.1e9, "error_frac": 0.1, "limit_frac": 0.03}
    return {
        "title": f"GPT-2 {name}",
        "program": {"command": f"python3 {name}"},
        "steps": [],
        "kernels": [],
        "nsys_equality": {"equal": 0, "compared": 0},
        "conditions": [{"name": "GPU", "value": name}],
        "trust": {"status": status, "sentence": "Off by 10 %.", "checks": [{**check, "passed": False}]},
        "coverage": {"sentence": "497 of 500 matched.", "matched": 497, "seen": 500, "frac": 0.994, "refused": 1},
        "findings": [{**finding, "cells": evidence}],
        "tables": [listed(n, t) for n, t in (of or tables()).items()],
        "figures": [{"name": "traffic", "files": ["figures/traffic.svg"], "table": "layers_folded", "caption": name}],
        "missing": [
            {
                "reason": "no_roofs",
                "what": f"No roofs for {name}.",
                "why": "No ceilings.json.",
                "do": "Run make roofline.",
            }
        ],
        "files": [{"name": name, "kind": "ncu raw", "rows": 3}],
        "notes": [name],
    }


def render_html(content: dict[str, Any], tables: dict[str, pd.DataFrame], svgs: dict[str, str]) -> str:
    return page_html.render_html(convert(content, Report), tables, svgs)


def render_markdown(content: dict[str, Any], tables: dict[str, pd.DataFrame]) -> str:
    return markdown.render_markdown(convert(content, Report), tables)


def render_terminal(content: dict[str, Any], **options: Any) -> str:
    return markdown.render_terminal(convert(content, Report), **options)


class Page(html.parser.HTMLParser):
    """Collects what a browser would see: tags, attributes, links; and checks that tags close in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.shown = ""
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "script"}:
            self.shown += data


SVGS = {
    "traffic": '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg"><g id="traffic-a"/></svg>'
}


def unpacked(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    runs = zip(values["runs"][::2], values["runs"][1::2], strict=True)
    return [value for value, count in runs for _ in range(count)]


def block(source: str) -> dict[str, Any]:
    """The block of data of a page, with the texts of each column in place."""
    found = json.loads(source.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    for table in found["tables"]:
        for column in table["columns"]:
            (kind,) = {"texts", "steps", "numbers", "mixed"} & column.keys()
            column["values"] = values = unpacked(column[kind])
            if kind == "texts":
                column["values"] = [None if place < 0 else found["strings"][place] for place in values]
            elif kind == "steps":
                column["values"] = list(itertools.accumulate(values))
    return found


def column_of(source: str, table: str, name: str) -> list[Any]:
    (found,) = [one for one in block(source)["tables"] if one["name"] == table]
    (column,) = [one for one in found["columns"] if one["name"] == name]
    return column["values"]


def test_two_renders_are_equal() -> None:
    assert render_html(report(), tables(), SVGS) == render_html(copy.deepcopy(report()), tables(), dict(SVGS))
    assert render_markdown(report(), tables()) == render_markdown(copy.deepcopy(report()), tables())
    assert render_terminal(report()) == render_terminal(copy.deepcopy(report()))


def test_views_change_neither_report_nor_tables() -> None:
    before_report, before_tables = report(), tables()
    used_report, used_tables = report(), tables()
    render_html(used_report, used_tables, SVGS)
    render_markdown(used_report, used_tables)
    assert used_report == before_report
    for name, table in before_tables.items():
        pd.testing.assert_frame_equal(table, used_tables[name])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_only_text_in_the_page(name: str) -> None:
    page = Page(render_html(report(name=name), tables(HOSTILE), SVGS))
    scripts = [attributes for tag, attributes in page.seen if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert [tag for tag, _ in page.seen].count("img") == 0
    assert not [a for _, attributes in page.seen for a in attributes if a.startswith("on")]
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", page.shown)  # no second rendering of a template in a name
    assert text.clean(HOSTILE[0]) in page.shown
    assert f"Command: {text.clean(text.shorten(f'python3 {name}', 120))}" in page.shown
    assert text.clean(f"python3 {name}") in page.shown


def test_long_names_are_cut_with_the_full_name_at_hand() -> None:
    source = render_html(report(), tables(HOSTILE), SVGS)
    folded = dict(re.findall(r"<summary>([^<]*)</summary>([^<]*)</details>", source))
    assert HOSTILE[4] in map(html.unescape, folded.values())
    assert all(len(short) < len(full) for short, full in folded.items())


def test_the_page_asks_nothing_of_the_network() -> None:
    source = render_html(report(), tables(), SVGS)
    page = Page(source)
    for tag, attributes in page.seen:
        assert "src" not in attributes, tag
        target = attributes.get("href") or "#"
        assert target.startswith(("#", "tables/", "data:,")), target
    assert "@import" not in source
    assert "url(" not in source
    policy = next(a["content"] for t, a in page.seen if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_the_policy_allows_exactly_the_script_of_the_page() -> None:
    import base64
    import hashlib

    source = render_html(report(), tables(), SVGS)
    script = source.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"sha256-{digest}" in html.unescape(source)


def test_every_claim_links_to_a_table_that_is_there() -> None:
    page = Page(render_html(report(), tables(), SVGS))
    links = {a["href"] for t, a in page.seen if t == "a" and "data-row" in a}
    ids = {a["id"] for _, a in page.seen if "id" in a}
    assert links == {"#kernels", "#layers_folded"}
    assert {str(link)[1:] for link in links} <= ids


def test_the_xml_prologue_of_a_figure_is_left_out() -> None:
    source = render_html(report(), tables(), SVGS)
    assert "<?xml" not in source
    assert source.count("<svg") == 1


def test_the_conditions_come_first_in_one_line_and_whole_at_the_end() -> None:
    full = report()
    rows = [("workload", "prefill"), ("GPU", "H200"), ("driver", "580"), ("commit", "abc"), ("SM clock", "1980 MHz")]
    full["conditions"] = [{"name": name, "value": value} for name, value in rows]
    line = "GPU H200 · driver 580 · SM clock 1980 MHz · workload prefill"
    shown = Page(render_html(full, tables(), SVGS)).shown
    assert shown.index("H200 · driver 580") < shown.index("Findings")
    assert shown.index("commit") > shown.index("What is missing")
    assert f"- **Conditions:** {line}" in render_markdown(full, tables())


def test_bytes_below_the_minimum_are_marked_in_their_row_and_explained_below() -> None:
    below = tables()
    below["traffic"] = below["traffic"].assign(measured_over_minimum=[0.96, 1.2])
    for shown in (Page(render_html(report(), below, SVGS)).shown, render_markdown(report(), below)):
        assert shown.count(f"0.96× {text.BELOW_MARK}") == 1
        assert shown.count(text.BELOW_MINIMUM) == 1
    assert text.BELOW_MARK not in Page(render_html(report(), tables(), SVGS)).shown


def test_numbers_are_sorted_by_their_values_whatever_is_shown() -> None:
    values = [7, 12, 1234, -3, 123_456_789_012, 0.25, 1e-9, 2.00000049, 0.0]
    kernels = pd.DataFrame(
        {"kernel": [f"k{i}" for i in range(len(values))], "occupancy": values, "nsys_time_ns": values}
    )
    described = report()
    (entry,) = [entry for entry in described["tables"] if entry["name"] == "kernels"]
    more = {"name": "occupancy", "unit": "", "description": "", "evidence": "counters"}
    described["tables"] = [{**entry, "columns": [*entry["columns"], more]}]
    page = render_html(described, {"kernels": kernels.assign(share_frac=values)}, {})
    for name in ("occupancy", "nsys_time_ns", "share_frac"):
        keys = column_of(page, "kernels", name)
        assert keys == pytest.approx(values, rel=1e-6)
        assert keys[4] == 123_456_789_012  # a start in nanoseconds: not rounded
    assert column_of(page, "kernels", "kernel") == kernels["kernel"].tolist()


def test_the_block_of_data_holds_what_the_csv_files_hold() -> None:
    page = render_html(report(), tables(HOSTILE), SVGS)
    for name, table in tables(HOSTILE).items():
        for column in table:
            values = column_of(page, name, column)
            assert [value is None for value in values] == table[column].map(text.is_missing).tolist()
            if column == "largest_gaps_ns":
                assert set(values) == {"120 µs, 90 µs"}
            elif pd.api.types.is_numeric_dtype(table[column]):
                known = table[column].dropna()
                assert [value for value in values if value is not None] == pytest.approx(known.tolist(), rel=1e-5)
            else:
                assert [value for value in values if value is not None] == [
                    text.clean(value) for value in table[column] if not text.is_missing(value)
                ]


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ([5] * 9, '{"name":"x","label":"x","right":1,"numbers":{"runs":[5,9]}}'),
        ([9, 8, 9, 8], '"numbers":[9,8,9,8]'),
        (list(range(1000, 1100)), '"steps":{"runs":[1000,1,1,99]}'),
        ([*range(1000, 1050), *range(1000, 1050)], '"steps":{"runs":[1000,1,1,49,-49,1,1,49]}'),  # two lanes
        ([0.5, 0.5, 0.5, None, None, None], '"numbers":{"runs":[0.5,3,null,3]}'),
        ([-(2**60), 2**60], '"numbers":[-1152921504606846976,1152921504606846976]'),  # a double does not hold the step
    ],
)
def test_what_repeats_is_stored_once(values: list[Any], stored: str) -> None:
    page = render_html(report(), {"kernels": pd.DataFrame({"kernel": "k", "x": values})}, {})
    assert stored in page
    assert column_of(page, "kernels", "x") == values


def test_infinite_numbers_and_answers_have_a_place_in_the_block() -> None:
    odd = pd.DataFrame({"kernel": ["a", "b"], "x": [float("inf"), -float("inf")], "y": [True, False], "z": [1.5, "w"]})
    page = render_html(report(), {"kernels": odd}, {})
    assert column_of(page, "kernels", "x") == [1e308, -1e308]
    assert column_of(page, "kernels", "y") == ["yes", "no"]
    assert column_of(page, "kernels", "z") == [1.5, "w"]
    assert "∞" in Page(page).shown


def test_missing_numbers_are_never_zero() -> None:
    source = render_html(report(), tables(), {})
    assert "nan" not in Page(source).shown.split("What is missing")[0].replace("unanswered", "")
    assert source.count("<td></td>") > 5  # in which the style sheet writes a dash
    shown = render_markdown(report(), tables())
    assert "nan" not in shown.lower()
    assert "<NA>" not in shown
    assert "None" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("| ampere_sgemm | gpt2/ampere_sgemm |"))
    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == [
        "12",
        "140.9 µs",
        "25.0 %",
        text.MISSING,
        text.MISSING,
        "counters",
    ]


@pytest.mark.parametrize("empty", [{}, {name: table.head(0) for name, table in tables().items()}])
def test_an_empty_report_is_a_page_that_says_so(empty: dict[str, pd.DataFrame]) -> None:
    bare = {**report(), "findings": [], "figures": [], "missing": [], "conditions": [], "files": [], "notes": []}
    page = Page(render_html(bare, empty, {}))
    assert "No finding" in page.shown
    assert "No finding" in render_markdown(bare, empty)
    assert "No finding" in render_terminal(bare)


def test_a_report_without_its_optional_parts_renders() -> None:
    empty = {name: [] for name in ("conditions", "findings", "tables", "figures", "missing", "files", "notes")}
    least = {**report(), **empty, "title": "x"}
    Page(render_html(least, {}, {}))
    assert render_markdown(least, {}).startswith("# x\n")
    assert render_terminal(least).startswith("x\n")


def test_more_rows_than_the_page_holds_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MAX_ROWS", 2000)
    many = pd.DataFrame({"kernel": [f"k{i}" for i in range(2005)], "tier": "timing"})
    source = render_html(report(), {"kernels": many}, {})
    assert "first 2,000 of 2,005; see tables/kernels.csv" in source
    assert column_of(source, "kernels", "kernel") == [f"k{i}" for i in range(2000)]
    shown = Page(source).shown
    assert f"first {STATIC_ROWS} of 2,005 rows" in shown
    assert f"k{STATIC_ROWS - 1}timing" in shown
    assert f"k{STATIC_ROWS}timing" not in shown


def test_untrusted_counters_are_marked_wherever_they_show() -> None:
    page = Page(render_html(report("untrusted"), tables(), SVGS))
    assert page.shown.count("Untrusted counters") == 3  # kernels, roofline, stalls
    rows = [a for tag, a in page.seen if tag == "tr" and a.get("class") == "warned"]
    assert len(rows) == 2 + 2 + 4
    assert page.shown.count("⚠ untrusted") == 1  # the occupancy, not nsys' time
    shown = render_markdown(report("untrusted"), tables())
    assert shown.count("**Untrusted counters**") == 3
    assert "50.0 % ⚠" in shown
    assert "140.9 µs ⚠" not in shown
    assert "counters ⚠" in shown
    assert "⚠" in render_terminal(report("untrusted"))


@pytest.mark.parametrize("status", ["trusted", "untested"])
def test_nothing_is_marked_untrusted_unless_the_self_test_failed(status: str) -> None:
    assert "Untrusted" not in Page(render_html(report(status), tables(), SVGS)).shown
    assert "⚠" not in render_markdown(report(status), tables())
    assert "⚠" not in render_terminal(report(status))


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_tables_keep_their_shape(name: str) -> None:
    shown = render_markdown(report(name=name), tables(HOSTILE))
    command = as_code(f"python3 {name}")
    assert f"- **Command:** {command}\n" in shown
    shown = shown.replace(command, "")
    assert "<script" not in shown
    assert "<img" not in shown
    columns = 0
    for line in shown.splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        columns = columns or cells
        assert cells == columns, line
    assert max(map(len, shown.splitlines())) < 6000


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("`c`", r"\`c\`"),
        ("f<int>", "f&lt;int&gt;"),
        ("a\nb", "a b"),
        ("at::native_kernel", "at::native_kernel"),
        ("__half", r"\_\_half"),
        ("h.*/attn", r"h.\*/attn"),
        ("a & b", "a &amp; b"),
        ("\\", r"\\"),
    ],
)
def test_escape(plain: str, escaped: str) -> None:
    assert escape(plain) == escaped


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("run `pip install -e '.[tinygrad]'`: a [b] *c*", "run `pip install -e '.[tinygrad]'`: a \\[b\\] \\*c\\*"),
        ("a lone ` and [b]", r"a lone \` and \[b\]"),
        ("`a | b`", r"`a \| b`"),
    ],
)
def test_escape_keeps_the_code_of_a_sentence(plain: str, escaped: str) -> None:
    assert escape_prose(plain) == escaped


def test_the_terminal_summary_holds_findings_evidence_and_no_control_characters() -> None:
    for name in HOSTILE:
        shown = render_terminal(report(name=name))
        assert "\x1b" not in shown
        assert "140.9 µs" in shown
        assert "kernels.occupancy_achieved_frac" in shown
        assert "saves at most 746 µs" in shown
        assert "Run make roofline." in render_terminal(report(name=name), verbose=True)
    assert "/" not in render_terminal(report())


def test_the_terminals_commands_are_whole_and_name_the_run() -> None:
    options = " ".join(f"--option-{number}" for number in range(20))
    gaps = [
        {
            "reason": "no_counters",
            "what": "counters",
            "why": "not asked",
            "do": f"`make sweep RUN=… ARGS='{options}'` with this run",
        },
        {
            "reason": "no_roofs",
            "what": "roofs",
            "why": "no file",
            "do": "run `python -m harness.run --out RUN/captures` on that GPU",
        },
    ]
    shown = render_terminal({**report(), "missing": gaps}, run="runs/one", verbose=True)
    assert f"     Fix: `make sweep RUN=runs/one ARGS='{options}'` with this run\n" in shown
    assert "--out runs/one/captures`" in shown
    assert "RUN=…" in render_terminal({**report(), "missing": gaps}, verbose=True)
    short = render_terminal({**report(), "missing": gaps * 3})
    assert "Missing (6): counters; roofs; counters; and 3 more." in short
    assert "make sweep" not in short
    told = "times.csv: no table of nsys or ncu"
    cut = render_terminal(
        {**report(), "missing": [gaps[0] | {"what": f"{told} (it begins with 'specimen, time_ns, repeats')"}]}
    )
    assert f"Missing (1): {told}. --verbose" in " ".join(cut.split())


def test_a_finding_without_a_known_win_claims_none() -> None:
    unknown = report()
    unknown["findings"][0]["saves_ns"] = {}
    assert "to win" not in render_markdown(unknown, tables()) + render_terminal(unknown)
    assert "to win" not in Page(render_html(unknown, tables(), {})).shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (140_900, "ns", "140.9 µs"),
        (12, "ns", "12 ns"),
        (0, "ns", "0 ns"),
        (2.5e9, "ns", "2.5 s"),
        (402_653_184, "byte", "402.7 MB"),
        (4.287e12, "byte/s", "4.287 TB/s"),
        (5.93e13, "flop/s", "59.3 TFLOP/s"),
        (0.25, "frac", "25.0 %"),
        (0.9997, "frac", "99.97 %"),
        (1.0, "0-1", "100.0 %"),
        (1e-6, "frac", "< 0.01 %"),
        (1.534, "ratio", "1.53×"),
        (1.0, "ratio", "1.00×"),
        (24.31, "ratio", "24.3×"),
        (12.5, "flop/byte", "12.5 FLOP/byte"),
        (1234567, "", "1,234,567"),
        (np.int64(7), "1", "7"),
        (np.float64(0.12345), "", "0.1235"),
        (True, "", "yes"),
        ([1000, 2000], "ns", "1 µs, 2 µs"),
        ("text", "ns", "text"),
        (None, "ns", text.MISSING),
        (NAN, "frac", text.MISSING),
        (pd.NA, "", text.MISSING),
        ("", "", text.MISSING),
        (float("inf"), "", "∞"),
    ],
)
def test_number(value: Any, unit: str, shown: str) -> None:
    assert text.number(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "column", "shown"),
    [
        (0.5, "roof_frac (dram)", "50.0 %"),
        (1e6, "dram_read_bytes + dram_write_bytes", "1 MB"),
        ("120000;90000", "largest_gaps_ns", "120 µs, 90 µs"),
        ("launch-bound", "verdict", "launch-bound"),
        (3, "launches", "3"),
    ],
)
def test_cell_takes_its_unit_from_the_column(value: Any, column: str, shown: str) -> None:
    assert text.cell(value, column) == shown


def test_shorten_keeps_both_ends() -> None:
    assert text.shorten("abcdefghij", 10) == "abcdefghij"
    assert text.shorten("abcdefghijk", 10) == "abcde…hijk"
    assert len(text.shorten("x" * 5000, 64)) == 64

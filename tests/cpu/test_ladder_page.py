"""The ladders in the READMEs, of synthetic tables: what a reader sees, what stays blank, and the same bytes every time."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pandas as pd

from analysis.page.canvas import to_bytes
from analysis.page.text import MISSING
from studies.ladder import figures as ladder_figures
from studies.ladder import page as ladder
from studies.ladder.page import ELSEWHERE_MARK, STALE_MARK, Bench

NAN = float("nan")
COUNTERS = {
    "launches": 1.0, "grid": "512x1x1", "block": "256x1x1", "waves": 1.5, "registers": 32.0, "measured_bytes": 1.1e9,
    "measured_over_predicted": 1.1, "shared_bytes_per_block": 1024.0, "occupancy_theoretical_frac": 0.75,
    "occupancy_achieved_frac": 0.5, "occupancy_limiter": "registers", "compute_throughput_frac": 0.25,
    "memory_throughput_frac": 0.9, "l1_hit_frac": 0.125, "l2_hit_frac": 0.5, "inst_executed": 12345.0,
    "sectors_per_request_load": 16.0, "sectors_per_request_store": 4.0, "uncoalesced_frac": 0.48,
    "branch_efficiency_frac": NAN, "local_bytes": 0.0, "warp_cycles_per_issue": 108.0, "top_stall": "long_scoreboard",
    "top_stall_frac": 0.62, "hot_line": "v02_wide.cu:57", "hot_line_frac": 0.36, "run": "20260101T000000Z",
}  # fmt: skip


def rung(variant: str, place: int, p50_us: float, dtype: str = "fp32", **more: Any) -> dict[str, Any]:
    """A row of ladder.csv without counters; `more` overrides."""
    time = p50_us * 1e3
    return {
        "op": "widen", "folder": "wide", "variant": variant, "kind": "cuda", "rung": place, "best": False,
        "library": "torch", "precision": NAN, "macros": NAN, "refuses": NAN, "dtype": dtype, "shape_name": "large", "shape": "64x32", "axes": "N,C",
        "at_bench_shape": True, "hypothesis": f"{variant} is __fast__", "bench_time_p5_ns": 0.9 * time,
        "time_kind": "isolated", "isolated_time_p5_ns": 0.9 * time, "isolated_time_p50_ns": time,
        "isolated_time_p95_ns": 1.1 * time, "chained_time_p5_ns": 0.7 * time, "chained_time_p50_ns": 0.8 * time,
        "chained_time_p95_ns": 0.9 * time,
        "bench_time_p50_ns": time, "bench_time_p95_ns": 1.1 * time, "minimum_bytes": 1e9, "predicted_bytes": 1e9,
        "compute_bound": False, "reads_only": False, "achieved_byte_per_s": 1e18 / time, "achieved_flop_per_s": NAN,
        "floor_time_ns": 1e5, "floor_frac": 1e5 / time, "rung_below": "", "versus_below": NAN,
        "versus_library_p50": 400 / p50_us, **dict.fromkeys(COUNTERS, NAN), "verdict": "not measured",
        "verdict_by": "", "verdict_why": NAN, "state": "missing", "stale": NAN, "flops": 2e9, "bench_run": "one", **more,
    }  # fmt: skip


def tables(**more: Any) -> dict[str, pd.DataFrame]:
    """Two dtypes: PyTorch's chain, its compiler, its reduced precision, two rungs, the better one with counters."""
    rows = []
    for dtype in ("bf16", "fp32"):
        rows += [
            rung("torch", 0, 400.0, dtype, kind="torch"),
            rung("compile", 1, 200.0, dtype, kind="compile"),
            rung("torch_tf32", 2, 50.0, dtype, kind="torch", precision="tf32"),
            rung("v01_naive", 3, 1000.0, dtype, verdict="refuted", verdict_by="time over x",
                 verdict_why="time over x 9 (≤ 2)"),
            rung("v02_wide", 4, 125.0, dtype, versus_below=8.0, best=True, **COUNTERS, verdict="reached",
                 verdict_by="DRAM bytes", state="current", refuses="odd, odder: N is odd", verdict_why="DRAM bytes 1.10 of predicted | (≤ 1.1)"),
        ]  # fmt: skip
    rows.append(rung("v02_wide", 4, 1.0, shape_name="for_a_claim", shape="1x1", at_bench_shape=False))
    table = pd.DataFrame(rows).assign(**more)
    stalls = pd.DataFrame(
        [("widen", "v02_wide", "fp32", "large", reason, share) for reason, share in (("long_scoreboard", 0.62), ("wait", 0.2))],
        columns=["op", "variant", "dtype", "shape_name", "reason", "share_frac"],
    )  # fmt: skip
    return {
        "ladder": table,
        "ladder_stalls": stalls,
        "hypotheses": pd.DataFrame(
            {
                "op": ["widen"] * 5,
                "stated": [True, True, True, False, False],
                "verdict": ["reached", "refuted", "reached", "refuted", "reached"],
            }
        ),
        "claims": pd.DataFrame({"claim": ["a", "a", "b"], "verdict": ["confirmed", "refuted", "not measured"]}),
        "ladder_runs": pd.DataFrame(
            [{"run": COUNTERS["run"], "gpu": "a GPU", "driver": "1", "ncu": "2025", "bf16_roof_flop_per_s": 8e14}]
        ),
        "not_timed": pd.DataFrame(columns=["op", "dtype", "shape_name"]),
    }


def bench(rows: pd.DataFrame | None = None, **more: Any) -> Bench:
    found = tables()["ladder"] if rows is None else rows
    found = found.assign(**{f"versus_{b}_{q}": NAN for b in ladder.BASELINES for q in ("p5", "p50", "p95")})
    found = found.assign(**(dict.fromkeys((f"in_model_time_{q}_ns" for q in ("p5", "p50", "p95")), NAN) | more))
    found = found.assign(versus_torch_p5=3.1, versus_torch_p50=3.2, versus_torch_p95=3.3)
    conditions = {"gpu": {"name": "a GPU"}, "driver": "1", "torch": "2", "triton": "3", "copy_byte_per_s": {"a": 4e12}}
    return Bench(found.reset_index(drop=True), conditions, "gpu-widen-bench")


def cells(text: str, name: str, nth: int = 0) -> dict[str, str]:
    """The nth row of any table whose first cell is `name`, by the table's headings."""
    found, headers = [], []
    for line in text.splitlines():
        if not line.startswith("|"):
            headers = []
            continue
        row = [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]
        headers = headers or row
        if row[0] == name:
            found.append(dict(zip(headers, row, strict=True)))
    return found[nth]


def test_registered_shapes_without_a_time_are_named_by_dtype() -> None:
    rows = [("widen", "fp32", "a"), ("widen", "fp32", "b"), ("widen", "bf16", "a"), ("other", "fp32", "c")]
    lacking = tables() | {"not_timed": pd.DataFrame(rows, columns=["op", "dtype", "shape_name"])}
    for times in ({"widen": bench()}, {}):
        text = ladder.render_folder("wide", lacking, times)
        assert "\nRegistered, and not timed yet: `a` in fp32, bf16; `b` in fp32.\n" in text
    assert "not timed yet" not in ladder.render_folder("wide", tables(), {"widen": bench()})


def test_the_time_inside_gpt2_is_a_column_where_the_operation_occurs_there() -> None:
    inside = {"in_model_time_p5_ns": 90e3, "in_model_time_p50_ns": 95e3, "in_model_time_p95_ns": 99e3}
    text = ladder.render_folder("wide", tables(), {"widen": bench(**inside)})
    assert "| 95.00 (90.00 – 99.00) " in text
    assert "“In GPT-2” is the time of its kernel" in text
    assert "in GPT-2" not in ladder.render_folder("wide", tables(), {"widen": bench()})


def test_a_rung_shows_time_share_bytes_stall_line_and_what_it_is_held_against() -> None:
    text = ladder.render_folder("wide", tables(), {"widen": bench()})
    row = cells(text, "**`v02_wide`**")
    assert row == {
        "rung": "**`v02_wide`**",
        "isolated µs, p50 (p5 – p95)": "125.00 (112.50 – 137.50)",
        "chained µs": "100.00 (87.50 – 112.50)",
        "GB/s": "8000",
        "of the roof": "80.0 %",
        "bytes predicted → moved": "1 GB → 1.1 GB (1.10×)",
        "waits for": "long_scoreboard 62 %",
        "hottest line": "`v02_wide.cu:57` 36 %",
        "vs rung below": "8.00×",
        "vs `torch`": "3.20×",
        "vs best library": "1.60× `compile`",  # the faster one of reduced precision is no match
        "verdict": "reached: DRAM bytes",
    }
    assert "N 64, C 32, fp32; floor 100 µs" in text
    assert text.index("fp32; floor") < text.index("bf16; floor")
    assert "for_a_claim" not in text.partition("at every shape")[0]


def test_what_has_no_counters_stays_blank_and_has_no_row_among_them() -> None:
    text = ladder.render_folder("wide", tables(), {})
    row = cells(text, "`v01_naive`")
    assert row["waits for"] == row["hottest line"] == MISSING
    assert row["bytes predicted → moved"] == "1 GB"
    assert row["verdict"] == "**refuted**: time over x"
    counters = text.partition("Counters, fp32")[2].partition("Counters, bf16")[0]
    assert "v02_wide" in counters
    assert "v01_naive" not in counters
    assert "nan" not in text.lower()
    none = ladder.render_folder("wide", tables(**dict.fromkeys(COUNTERS, NAN)), {})
    assert "Counters, " not in none
    assert "Counters: not captured yet." in none


def test_the_counters_that_judge_a_hypothesis() -> None:
    text = ladder.render_folder("wide", tables(), {"widen": bench()}, where="reports/gpu-ladder")
    text = text.partition("Counters, fp32")[2]
    row = cells(text, "**`v02_wide`**") | cells(text, "**`v02_wide`**", 1)
    assert row["occupancy theoretical / achieved"] == "75 / 50 % (registers)"
    assert row["L1 / L2 hit"] == "12.5 / 50 %"
    assert row["warp instructions"] == "12,345"
    assert row["sectors per request, load / store"] == "16 / 4"
    assert row["branch efficiency"] == MISSING
    assert row["local memory"] == "0 B"
    assert row["warp cycles per issue"] == "108"
    assert row["largest stalls"] == "long_scoreboard 62 %, wait 20 %"
    assert "from `reports/gpu-ladder/20260101T000000Z`" in text


def test_bold_is_the_fastest_that_was_measured_whichever_is_declared_the_best() -> None:
    table = tables()["ladder"]
    fast = table["bench_time_p50_ns"].mask(table["variant"] == "v01_naive", 1e5)
    late = tables(bench_time_p50_ns=fast, isolated_time_p50_ns=fast)
    text = ladder.render_folder("wide", late, {})
    assert cells(text, "**`v01_naive`**")["isolated µs, p50 (p5 – p95)"].startswith("100.00")
    assert "**`v02_wide`**" not in text
    assert text.count("The fastest here is `v01_naive`; where no rung is named, `v02_wide` runs.") == 2  # dtypes
    row = cells(ladder.render_overview(late, {}), "[widen](wide/README.md)")
    assert (row["fastest rung"], row["time"]) == ("`v01_naive`", "100 µs, 100 µs")
    assert "The fastest here" not in ladder.render_folder("wide", tables(), {})


def test_rungs_that_are_not_built_with_their_defaults_are_named_once() -> None:
    names = tables()["ladder"]["variant"]
    text = ladder.render_folder(
        "wide", tables(macros=names.map({"v02_wide": "WIDE_V02_THREADS=64 WIDE_V02_AHEAD=2"})), {}
    )
    told = (
        "Built with: `v02_wide` THREADS=64 AHEAD=2 ([a sweep found it faster over its dtypes and shapes together]"
        "(../tuned.toml)); every other rung"
    )
    assert text.count(told) == 1
    assert "fp32; floor" in text.partition(told)[0]
    assert "bf16; floor" in text.partition(told)[2]
    assert "Built with" not in ladder.render_folder("wide", tables(), {})


def test_a_share_that_only_another_shape_has_stands_with_its_name() -> None:
    def told(**more: Any) -> str:
        found = tables()
        other = rung("v02_wide", 4, 1.0, shape_name="small", at_bench_shape=False, branch_efficiency_frac=0.986, **more)
        found["ladder"] = pd.concat([found["ladder"], pd.DataFrame([other])], ignore_index=True)
        return cells(ladder.render_folder("wide", found, {}), "**`v02_wide`**", 3)["branch efficiency"]

    assert told() == "98.6 % at small"
    assert told(stale="times") == "98.6 % at small"
    assert told(stale="times counters") == MISSING
    assert told(dtype="fp8") == MISSING


def test_conditions_name_the_clock_where_it_was_sampled() -> None:
    clocks = {"sm_mhz": {"min": 1320.0, "median": 1980.0, "max": 1980.0}, "throttle_reasons": ["sw_power_cap"]}
    for known, told in (
        (clocks, "cold caches. SM clock 1320 MHz at least, 1980 median, held back by sw_power_cap. From"),
        ({**clocks, "throttle_reasons": []}, "cold caches. SM clock 1320 MHz at least, 1980 median. From"),
        (None, "cold caches. From"),
    ):
        seen = bench()
        seen = Bench(seen.rows, {**seen.conditions, "clocks": known}, seen.run)
        assert told in ladder.render_folder("wide", tables(), {"widen": seen})


def test_clocks_that_a_run_lost_are_said_to_be_lacking() -> None:
    seen = bench()
    lost = Bench(seen.rows, {**seen.conditions, "clocks": None, "clocks_reason": "the call ended"}, seen.run)
    assert "cold caches. SM clock not recorded. From" in ladder.render_folder("wide", tables(), {"widen": lost})
    assert "Not recorded: the clocks of widen." in ladder.render_overview(tables(), {"widen": lost})
    assert "Not recorded" not in ladder.render_overview(tables(), {"widen": seen})


def test_hypotheses_stay_text_and_say_what_was_found_by_dtype() -> None:
    text = ladder.render_folder("wide", tables(), {}).partition("\nHypotheses\n")[2]
    row = cells(text, "`v02_wide`")
    assert row["says"] == "v02_wide is \\_\\_fast\\_\\_"
    assert row["found"] == "DRAM bytes 1.10 of predicted ¦ (≤ 1.1)"
    assert (row["dtype"], row["verdict"]) == ("fp32, bf16", "reached")
    differing = tables()
    differing["ladder"].loc[differing["ladder"]["dtype"] == "bf16", "verdict_why"] = "time over `x` 1 (≤ 2)"
    text = ladder.render_folder("wide", differing, {}).partition("\nHypotheses\n")[2]
    assert cells(text, "`v01_naive`")["dtype"] == "fp32"
    assert cells(text, "")["found"] == "time over `x` 1 (≤ 2)"


def test_failed_checks_are_named() -> None:
    assert "failed its check" in ladder.render_folder("wide", tables(state="failed"), {})
    assert "failed its check" not in ladder.render_folder("wide", tables(), {})


def test_rungs_with_numbers_of_an_older_build_are_marked_and_say_which() -> None:
    names = tables()["ladder"]["variant"]
    stale = names.map({"v01_naive": "times counters", "v02_wide": "counters"})
    text = ladder.render_folder("wide", tables(stale=stale, macros=names.map({"v02_wide": "WIDE_V02_THREADS=64"})), {})
    assert cells(text, f"**`v02_wide`** {STALE_MARK}")["vs rung below"] == "8.00×"
    assert cells(text.partition("\nHypotheses\n")[2], f"`v02_wide` {STALE_MARK}")["verdict"] == "reached"
    assert f"{STALE_MARK} `v02_wide`: counters are of an older build" in text
    assert f"{STALE_MARK} `v01_naive`: times and counters are of an older build" in text
    assert f"Every rung without {STALE_MARK} is judged as it is built." in text
    assert STALE_MARK not in ladder.render_folder("wide", tables(), {})
    for what, mark in (("counters", ""), ("times", f" {STALE_MARK}")):  # the overview shows no counters of one rung
        overview = ladder.render_overview(tables(stale=what), {})
        assert cells(overview, "[widen](wide/README.md)")["fastest rung"] == f"`v02_wide`{mark}"
        assert (f"{STALE_MARK} times are of an older build" in overview) == bool(mark)


def test_rungs_of_another_run_name_it_and_the_floor_of_its_roof() -> None:
    table = tables()["ladder"]
    first = table["variant"] == "torch"  # which stands first: the table's own floor is still that of the others
    apart = tables(
        bench_run=table["bench_run"].mask(first, "two"), floor_time_ns=table["floor_time_ns"].mask(first, 1.25e5)
    )
    text = ladder.render_folder("wide", apart, {})
    assert cells(text, f"`torch` {ELSEWHERE_MARK}")["rung"]
    assert "N 64, C 32, fp32; floor 100 µs\n" in text
    assert f"{ELSEWHERE_MARK} `torch`: timed in another run than most (`two`) and held against the roof" in text
    assert "floor 125 µs in fp32, 125 µs in bf16. Ratios" in text
    assert ELSEWHERE_MARK not in ladder.render_folder("wide", tables(), {})


def test_an_op_bound_by_arithmetic_names_its_roof_and_its_clock_beside_the_table() -> None:
    found, timed = of_arithmetic()
    clocks = {"sm_mhz": {"min": 1350.0, "median": 1980.0}, "throttle_reasons": ["sw_power_cap"]}
    timed = Bench(timed.rows, {**timed.conditions, "clocks": clocks}, timed.run)
    heading = "fp32; floor 100 µs at 20 TFLOP/s; SM clock 1350 MHz at least, 1980 median, held back by sw_power_cap\n"
    assert heading in ladder.render_folder("wide", found, {"widen": timed})
    plain = Bench(timed.rows, timed.conditions, timed.run)
    assert "fp32; floor 100 µs\n" in ladder.render_folder("wide", tables(), {"widen": plain})


def test_a_hit_rate_is_shown_as_at_most_all() -> None:
    text = ladder.render_folder("wide", tables(l2_hit_frac=1.00392), {})
    assert cells(text.partition("Counters, fp32")[2], "**`v02_wide`**", 1)["L1 / L2 hit"] == "12.5 / 100 %"


def test_every_shape_and_what_is_refused() -> None:
    text = ladder.render_folder("wide", tables(), {"widen": bench()})
    shapes = text.partition("The fastest rung at every shape")[2]
    assert "| for_a_claim" in shapes
    assert "`v02_wide`" in shapes
    assert "3.200 (3.100 – 3.300)" in shapes
    refused = text.partition("What a rung does not take")[2]
    assert cells(refused, "`v02_wide`") == {"rung": "`v02_wide`", "shapes, and why": "odd, odder: N is odd"}
    assert "Copy in the same run: 4.000 TB/s." in text


def test_ops_of_one_folder_have_headings() -> None:
    both = tables()
    both["ladder"] = pd.concat([both["ladder"], both["ladder"].assign(op="widen_more")])
    text = ladder.render_folder("wide", both, {})
    assert text.index("### widen\n") < text.index("### widen_more\n")
    assert ladder.folders(both) == ["wide"]


def test_another_gpu_is_folded_with_every_rung_every_shape_and_its_counters() -> None:
    parts = ladder.render_elsewhere("wide", tables(), {"widen": bench()}, "reports/x-ladder")
    assert parts[0].splitlines()[1] == "<summary>widen on a GPU: every rung, every shape, counters</summary>"
    text = "\n\n".join(parts)
    assert text.count("<details>") == text.count("</details>") == 3  # the op, and the counters of two dtypes
    assert parts[-1] == "</details>"
    assert cells(text, "`v01_naive`")["verdict"].startswith("**refuted**")
    assert "reports/x-ladder/20260101T000000Z" in text
    bare = tables(**dict.fromkeys(COUNTERS, NAN))
    (summary, *_) = ladder.render_elsewhere("wide", bare, {"widen": bench()}, "reports/x-ladder")
    assert summary.endswith("every rung, every shape</summary>")
    assert ladder.render_elsewhere("wide", tables(), {}, "reports/x-ladder") == []


def test_the_overview_has_one_line_an_op() -> None:
    text = ladder.render_overview(tables(), {})
    row = cells(text, "[widen](wide/README.md)")
    assert row["fastest rung"] == "`v02_wide`"
    assert row["time"] == "125 µs, 125 µs"
    assert row["vs best library (p5 – p95)"] == "1.60× (1.31 – 1.96) `compile`, 1.60× (1.31 – 1.96) `compile`"
    assert row["of the measured roof"] == "80.0 %, 80.0 %"
    assert row["hypotheses reached / not refuted / refuted / not measured"] == "2 / 0 / 1 / 0"
    assert row["rungs that move ≤ 1.1 × the predicted bytes"] == "2 of 2"  # of two dtypes; nothing else has counters
    assert "2 claims with 3 numbers, 1 confirmed, 1 refuted, 1 not measured" in text
    untimed = tables(bench_time_p50_ns=NAN)
    assert "[widen]" not in ladder.render_overview(untimed, {})


def test_the_overview_marks_a_ratio_of_two_runs() -> None:
    table = tables()["ladder"]
    assert ELSEWHERE_MARK not in ladder.render_overview(tables(), {})
    apart = tables(
        bench_run=table["bench_run"].mask((table["variant"] == "compile") & (table["dtype"] == "fp32"), "two")
    )
    text = ladder.render_overview(apart, {})
    ratios = cells(text, "[widen](wide/README.md)")["vs best library (p5 – p95)"]
    assert ratios == "1.60× (1.31 – 1.96) `compile` §, 1.60× (1.31 – 1.96) `compile`"
    assert f"{ELSEWHERE_MARK} the two times are of different runs." in text


def test_the_overview_counts_the_bytes_of_every_rung_at_the_bench_shape_whatever_it_states() -> None:
    table = tables()["ladder"]
    more = table["measured_over_predicted"].mask(table["variant"] == "v01_naive", 2.75)
    more = more.mask(table["shape_name"] == "for_a_claim", 1.0)
    row = cells(ladder.render_overview(tables(measured_over_predicted=more), {}), "[widen](wide/README.md)")
    assert row["rungs that move ≤ 1.1 × the predicted bytes"] == "2 of 4"


def test_the_overview_says_what_was_held_against_and_under_which_clocks() -> None:
    found, timed = of_arithmetic()
    found["ladder"] = found["ladder"].assign(versus_compile_p5=1.5, versus_compile_p50=1.55, versus_compile_p95=1.6)
    clocks = {"sm_mhz": {"min": 1350.0, "median": 1980.0}, "throttle_reasons": ["sw_power_cap"]}
    seen = {**timed.conditions, "clocks": clocks, "roofs": {"bf16": 7e14}}
    text = ladder.render_overview(found, {"widen": Bench(timed.rows, seen, timed.run)})
    row = cells(text, "[widen](wide/README.md)")
    assert row["of the measured roof"] == "80.0 % of 20 TFLOP/s, 80.0 % of 20 TFLOP/s"
    assert row["vs best library (p5 – p95)"].startswith("1.55× (1.50 – 1.60) `compile`, ")
    assert (
        "The GPU held clocks back at times (sw_power_cap). Least and median SM clock in MHz: widen 1350, 1980." in text
    )
    assert "The bf16 roof is cuBLAS at 8192³: between 700 TFLOP/s and 800 TFLOP/s over all committed runs." in text
    assert "A kernel can exceed it: its data may stay in L2" in ladder.render_overview(tables(), {})
    assert "held back" not in ladder.render_overview(tables(), {"widen": timed})


def test_a_page_says_what_an_empty_kernel_takes_alone() -> None:
    seen = bench()
    told = "An empty kernel takes 4.1 µs alone, so that short launches look more alike."
    assert told not in ladder.render_folder("wide", tables(), {"widen": seen})
    seen = Bench(seen.rows, {**seen.conditions, "empty_kernel_ns": {"p5": 4000, "p50": 4130, "p95": 4300}}, seen.run)
    assert told in ladder.render_folder("wide", tables(), {"widen": seen})


def words_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def of_arithmetic() -> tuple[dict[str, pd.DataFrame], Bench]:
    """The tables with compute_bound and a benchmark of three shapes."""
    found = tables(compute_bound=True, achieved_flop_per_s=2e13)
    rows = found["ladder"][found["ladder"]["at_bench_shape"]]
    shapes = [
        rows.assign(shape_name=name, achieved_flop_per_s=rate, bench_time_p50_ns=rows["bench_time_p50_ns"] * n)
        for n, (name, rate) in enumerate((("large", 2e13), ("small", 1e12), ("huge", 3e13)), start=1)
    ]
    return found, bench(pd.concat(shapes))


def test_figures_name_the_stall_and_the_library_and_are_the_same_every_time() -> None:
    found, timed = of_arithmetic()
    first, second = (ladder_figures.draw_ladders(found, {"widen": timed}) for _ in range(2))
    assert first == second
    assert set(first) == {"wide/widen", "wide/widen_shapes"}
    words = words_of(first["wide/widen"])
    assert "80.0 % · long_scoreboard 62 %" in words
    assert {"fp32", "bf16", "v01_naive", "of the measured roof, at N 64, C 32"} <= set(words)
    curves = words_of(first["wide/widen_shapes"])
    assert {"our fastest rung", "torch", "compile", "large", "small", "huge", "TFLOP/s"} <= set(curves)
    assert "Not drawn, of another precision: torch_tf32." in curves
    text = ladder.render_folder("wide", found, {"widen": timed})
    assert all(f"]({name.partition('/')[2]}.svg)" in text for name in first)


def test_a_bandwidth_bound_op_has_no_curve_and_a_rung_without_a_time_says_so() -> None:
    found = tables(floor_frac=NAN)
    drawn = ladder_figures.draw_ladders(found, {"widen": bench()})
    assert set(drawn) == {"wide/widen"}
    assert "not timed · long_scoreboard 62 %" in words_of(drawn["wide/widen"])
    assert to_bytes(ladder_figures.plot_rungs(ladder.rungs_of("widen", found), ""))["png"].startswith(b"\x89PNG")

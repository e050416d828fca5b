"""The figures of synthetic tables: what is drawn, what is said about what is not, and the same bytes every time."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from PIL import Image

from analysis.page import colours, figures, text
from analysis.page.canvas import style_context, to_bytes, to_png, to_svg

NAN = float("nan")
CAPTION = "NVIDIA H200 · gpt2 fp32 · SM 1980 MHz"
HOSTILE = (
    "<script>alert(1)</script>",
    "a\"b'c`d|e&f",
    "核函数 🦙 ядро",
    "k" * 5000,
    "line\nbreak\x00\x1b[31m\u202e",
    r"$\frac{1}{2}$ $",
    "",
)


def roofline(names: tuple[str, ...] = ("gemm", "softmax")) -> pd.DataFrame:
    rows = []
    for i, name in enumerate(names):
        for level, factor in (("dram", 1), ("l2", 3), ("l1", 9)):
            intensity = 10.0 * (i + 1) / factor
            rows.append((name, "gpt2/h.*", level, 1e9, 1e8, intensity, 1e12 * (i + 1), 4e13, NAN, 0.3, "memory"))
    columns = (
        "kernel range level flops bytes intensity_flop_per_byte achieved_flop_per_s roof_flop_per_s "
        "roof_datasheet_flop_per_s roof_frac bound"
    )
    return pd.DataFrame(rows, columns=columns.split()).assign(tier="counters")


def roofs() -> pd.DataFrame:
    rows = [
        ("dram_copy", "bandwidth", "dram", 4.287e12, 4.8e12),
        ("dram_read", "bandwidth", "dram", 4.14e12, 4.8e12),
        ("l2", "bandwidth", "l2", 7.9e12, NAN),
        ("l1", "bandwidth", "l1", NAN, NAN),
        ("fp32", "compute", "", 5.93e13, 6.69e13),
        ("bf16", "compute", "", NAN, 9.89e14),
    ]
    return pd.DataFrame(rows, columns=["name", "kind", "level", "measured", "datasheet"])


def stalls(names: tuple[str, ...] = ("gemm", "softmax")) -> pd.DataFrame:
    rows = [(n, "h.*", r, s) for n in names for r, s in (("wait", 0.7), ("a_new_reason", 0.29), ("misc", 0.01))]
    return pd.DataFrame(rows, columns=["kernel", "range", "reason", "share_frac"]).assign(tier="counters")


def traffic(names: tuple[str, ...] = ("softmax", "matmul")) -> pd.DataFrame:
    rows = [(f"h.*/{n}", n, "torch", 5e7, 4e8, 5e7, 1.5e8, 9.5e7, NAN, 4.9) for n in names]
    columns = (
        "range op variant minimum_bytes predicted_unfused_bytes predicted_fused_bytes dram_read_bytes "
        "dram_write_bytes l2_bytes measured_over_minimum"
    )
    return pd.DataFrame(rows, columns=columns.split()).assign(tier="counters")


def layers(names: tuple[str, ...] = ("gpt2", "gpt2/h.*")) -> pd.DataFrame:
    rows = [(n, 1, 2e6, 1e6, 4e5, 10, 0.5) for n in names]
    columns = "range calls cpu_time_ns gpu_time_ns gpu_self_time_ns launches share_frac"
    return pd.DataFrame(rows, columns=columns.split()).assign(tier="timing")


def fusion(names: tuple[str, ...] = ("softmax", "bias + GELU")) -> pd.DataFrame:
    rows = [(n, "gpt2/prefill", "gpt2/prefill/h.*", 4e8 / (i + 1), 1e8, 3e8) for i, n in enumerate(names)]
    columns = "pattern step range now_time_ns bound_time_ns gain_ns"
    return pd.DataFrame(rows, columns=columns.split()).assign(tier="timing")


PLOTS: dict[str, tuple[Callable[..., pd.DataFrame], Callable[[pd.DataFrame], Any]]] = {
    "roofline": (roofline, lambda table: figures.plot_roofline(table, roofs(), CAPTION)),
    "stalls": (stalls, lambda table: figures.plot_stalls(table, CAPTION)),
    "traffic": (traffic, lambda table: figures.plot_traffic(table, CAPTION)),
    "layers": (layers, lambda table: figures.plot_layers(table, CAPTION)),
    "fusion": (fusion, lambda table: figures.plot_fusion(table, CAPTION)),
}
every_plot = pytest.mark.parametrize("name", PLOTS)


def svg_of(figure: Any) -> str:
    return to_svg(figure).decode("utf-8")


def words_of(figure: Any) -> list[str]:
    root = ElementTree.fromstring(svg_of(figure))
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
@every_plot
def test_the_same_table_gives_the_same_bytes(name: str) -> None:
    table, plot = PLOTS[name]
    first, second = to_bytes(plot(table())), to_bytes(plot(table()))
    assert first == second
    assert first["png"].startswith(b"\x89PNG")
    assert b"date" not in first["svg"].lower()
    assert b"Matplotlib" not in first["svg"]
    assert len(first["svg"]) < 100_000


@pytest.mark.slow
@every_plot
def test_the_palette_of_a_png_keeps_its_colours(name: str) -> None:
    table, plot = PLOTS[name]
    figure, full = plot(table()), io.BytesIO()
    with style_context():
        figure.savefig(full, format="png")
    small = to_png(figure)
    with Image.open(full) as drawn, Image.open(io.BytesIO(small)) as kept:
        colours, of_palette = (np.asarray(image.convert("RGB"), int) for image in (drawn, kept))
    assert colours.shape == of_palette.shape
    assert np.abs(colours - of_palette).max() <= 16
    assert len(small) < 0.6 * len(full.getvalue())


@pytest.mark.slow
@every_plot
def test_saving_a_figure_twice_gives_the_same_bytes(name: str) -> None:
    table, plot = PLOTS[name]
    figure = plot(table())
    assert to_bytes(figure) == to_bytes(figure)


@every_plot
def test_an_empty_table_gives_no_figure(name: str) -> None:
    table, plot = PLOTS[name]
    assert plot(table().head(0)) is None
    assert plot(pd.DataFrame(columns=table().columns)) is None


@every_plot
def test_a_table_of_missing_numbers_does_not_fail(name: str) -> None:
    table, plot = PLOTS[name]
    rows = table()
    for column in rows.select_dtypes("number").columns:
        rows[column] = NAN
    assert plot(rows) is None
    for column in rows.select_dtypes("number").columns:
        rows[column] = pd.array([pd.NA] * len(rows), dtype="Int64")
    plot(rows)


@every_plot
def test_caption_is_under_the_figure(name: str) -> None:
    table, plot = PLOTS[name]
    assert CAPTION in words_of(plot(table()))


@pytest.mark.slow
@every_plot
def test_hostile_names_stay_text(name: str) -> None:
    table, plot = PLOTS[name]
    image = to_bytes(plot(table(HOSTILE)))
    root = ElementTree.fromstring(image["svg"])  # well-formed: no control character, no open tag
    assert not [e for e in root.iter() if e.tag.lower().endswith("script")]
    assert not [e for e in root.iter() if any(a.lower().startswith("on") for a in e.attrib)]
    assert max(len(e.text or "") for e in root.iter()) < 3000  # a 5,000-character name was shortened


@pytest.mark.slow
def test_ids_are_told_apart_between_figures_of_one_page() -> None:
    ids = [set(re.findall(r' id="([^"]+)"', svg_of(plot(table())))) for table, plot in PLOTS.values()]
    for i, one in enumerate(ids):
        assert one
        for other in ids[i + 1 :]:
            assert not one & other
    for table, plot in PLOTS.values():
        svg = svg_of(plot(table()))
        known = set(re.findall(r' id="([^"]+)"', svg))
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg)) <= known


def test_roofline_names_both_kinds_of_roof_on_their_lines() -> None:
    words = "\n".join(words_of(figures.plot_roofline(roofline(), roofs(), CAPTION)))
    assert "DRAM 4.287 TB/s copy / 4.14 TB/s read measured · 4.8 TB/s datasheet" in words
    assert "L2 7.9 TB/s measured" in words
    assert "59.3 TFLOP/s measured" in words
    assert "66.9 TFLOP/s datasheet" in words
    assert "989 TFLOP/s datasheet" in words
    assert "FLOP/byte" in words
    assert "FLOP/s" in words
    assert "nan" not in words.lower()


def test_roofline_lists_kernels_without_flops_in_a_note() -> None:
    table = roofline(("gemm", "copy", "unknown"))
    table.loc[table.kernel == "copy", ["flops", "intensity_flop_per_byte", "achieved_flop_per_s"]] = 0.0
    table.loc[table.kernel == "unknown", ["flops", "intensity_flop_per_byte", "achieved_flop_per_s"]] = NAN
    words = words_of(figures.plot_roofline(table, roofs(), CAPTION))
    assert "Not drawn, no floating-point work (1): copy." in words
    assert "Not drawn, not measured (1): unknown." in words


@pytest.mark.parametrize("known", [None, roofs().head(0), roofs().assign(measured=NAN, datasheet=NAN)])
def test_roofline_without_roofs_says_so(known: pd.DataFrame | None) -> None:
    words = "".join(words_of(figures.plot_roofline(roofline(), known, CAPTION)))
    assert "No roofs" in words


def test_roofline_numbers_ten_of_thirty_kernels_without_overlap() -> None:
    figure = figures.plot_roofline(roofline(tuple(f"kernel{i}" for i in range(30))), roofs(), CAPTION)
    words = words_of(figure)
    assert "kernel9" in words
    assert "kernel10" not in words
    assert figure is not None
    axes = figure.axes[0]
    boxes = [Text.get_window_extent(t) for t in axes.texts if t.get_text().isdigit()]  # without their arrows
    spots = [
        a
        for i, a in enumerate(boxes)
        for b in boxes[i + 1 :]
        if a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
    ]
    assert len(boxes) == 10
    assert not spots


def test_roofline_words_on_a_roof_make_way_for_kernels() -> None:
    def place_of_words(table: pd.DataFrame) -> float:
        figure = figures.plot_roofline(table, roofs(), CAPTION)
        assert figure is not None
        return float(next(t for t in figure.axes[0].texts if t.get_text().startswith("DRAM")).xy[0])

    alone, crowded = roofline(("gemm",)), roofline(tuple(f"kernel{i}" for i in range(12)))
    # the left end of the DRAM roof is where the words would stand
    crowded["intensity_flop_per_byte"] = [0.04 + 0.005 * (i // 3) for i in range(len(crowded))]
    crowded["achieved_flop_per_s"] = 5.2e12 * crowded.intensity_flop_per_byte
    together = pd.concat([crowded, alone, roofline(("low",)).assign(achieved_flop_per_s=1e11)])
    assert place_of_words(together) > place_of_words(together[together.kernel.isin(["gemm", "low"])]) + 20


def test_roofline_numbers_are_nearest_to_their_own_kernel() -> None:
    table = roofline(tuple(f"kernel{i}" for i in range(8)))
    table["intensity_flop_per_byte"] = [100.0 + 15 * (i // 3) for i in range(len(table))]
    figure = figures.plot_roofline(table, roofs(), CAPTION)
    assert figure is not None
    axes = figure.axes[0]
    figure.draw_without_rendering()
    own = {t.get_text(): t for t in axes.texts if t.get_text().isdigit()}
    spots = {name: axes.transData.transform(t.xy) for name, t in own.items()}
    for name, number in own.items():
        box = Text.get_window_extent(number)
        middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        assert min(spots, key=lambda other: math.dist(spots[other], middle)) == name


def test_stalls_keep_a_fixed_colour_whatever_else_is_there() -> None:
    both = svg_of(figures.plot_stalls(stalls(), CAPTION))
    alone = svg_of(figures.plot_stalls(stalls().query("reason == 'wait'"), CAPTION))
    colour = colours.STALLS["wait"][0].lower()
    assert colour in both.lower()
    assert colour in alone.lower()
    assert "a_new_reason" in both
    assert len(set(colours.STALLS.values())) == len(colours.STALLS)


def test_stalls_fold_what_never_matters_and_say_how_many_kernels_are_left_out() -> None:
    words = words_of(figures.plot_stalls(stalls(tuple(f"kernel{i}" for i in range(20))), CAPTION))
    assert "other (1, each < 2 %)" in words
    assert "The first 12 of 20 kernels; all in the table." in words
    assert "kernel11" in words
    assert "kernel12" not in words


def test_traffic_says_what_is_not_measured_and_never_draws_it_as_zero() -> None:
    table = traffic()
    table.loc[0, ["dram_read_bytes", "dram_write_bytes", "measured_over_minimum"]] = NAN
    table.loc[1, ["dram_write_bytes", "measured_over_minimum"]] = NAN
    words = words_of(figures.plot_traffic(table, CAPTION))
    assert "not measured" in words
    assert "150 MB (read only)" in words


def test_traffic_below_the_minimum_is_marked_in_its_row_and_explained_below() -> None:
    table = traffic().assign(measured_over_minimum=[0.96, 0.997])
    words = words_of(figures.plot_traffic(table, CAPTION))
    assert f"245 MB = 0.96× minimum {text.BELOW_MARK}" in words
    assert "245 MB = 1.00× minimum" in words
    assert any(word.startswith(text.BELOW_MARK) for word in words)
    whole = words_of(figures.plot_traffic(traffic(), CAPTION))
    assert text.BELOW_MARK not in "".join(whole)


def test_traffic_of_one_op_names_variants_and_stays_small() -> None:
    table = pd.concat([traffic(("softmax",)).assign(variant=name) for name in ("torch", "v01", "v02")])
    figure = figures.plot_traffic(table, CAPTION, "softmax")
    assert figure is not None
    assert figure.get_size_inches()[1] < 3.5
    words = words_of(figure)
    assert {"torch", "v01", "v02"} <= set(words)
    assert "Byte ledger: what softmax had to move, and what each variant moved over DRAM" in words


def test_traffic_of_other_sizes_has_a_scale_of_its_own() -> None:
    small, large = traffic(("small",)), traffic(("large", "half"))
    numbers = [name for name in large if name.endswith("_bytes")]
    large[numbers] = large[numbers].mul([100, 50], axis=0)
    figure = figures.plot_traffic(pd.concat([small, large]), CAPTION)
    assert figure is not None
    assert [len(axes.get_lines()) for axes in figure.axes] == [3, 6]  # marks: one row, and two
    assert figure.axes[0].get_xlim()[1] < figure.axes[1].get_xlim()[1] / 50
    words = words_of(figure)
    assert "Each group of rows has a scale of its own." in words
    assert words.index("small · torch") < words.index("large · torch")
    one = figures.plot_traffic(large, CAPTION)
    assert one is not None
    assert len(one.axes) == 1


def test_traffic_draws_twenty_rows_at_most() -> None:
    figure = figures.plot_traffic(traffic(tuple(f"op{i}" for i in range(30))), CAPTION)
    assert "The first 20 of 30 rows; all in the table." in words_of(figure)


def test_layers_label_time_and_share_and_keep_the_largest() -> None:
    table = layers(tuple(f"range{i}" for i in range(40)))
    table["gpu_time_ns"] = [float(1000 + i) for i in range(40)]
    words = words_of(figures.plot_layers(table, CAPTION))
    assert "1.039 µs · 50.0 %" in words
    assert "range0" not in words
    assert words.index("range12") < words.index("range39")
    assert "The 28 largest of 40 ranges; all in the table." in words


def test_layers_of_a_cpu_run_show_cpu_time() -> None:
    table = layers().assign(gpu_time_ns=NAN, gpu_self_time_ns=NAN)
    words = words_of(figures.plot_layers(table, CAPTION))
    assert "CPU time of the range (no GPU in this run)" in words
    assert "2 ms" in " ".join(words)


def test_fusion_shows_the_program_with_most_to_win_and_no_row_without_a_gain() -> None:
    table = pd.concat([fusion(), fusion(("unknown",)).assign(gain_ns=NAN), fusion(("other",)).assign(step="b/prefill")])
    words = words_of(figures.plot_fusion(table, CAPTION))
    assert "softmax" in words
    assert "gain 300 ms" in words
    assert not {"unknown", "other"} & set(words)


def test_a_ledger_without_declared_bytes_has_a_scale_and_names_of_its_layers() -> None:
    table = traffic().assign(range=["run/mlp", "run/attn"], op=None, variant=[", mean of 6 layers", ""])
    for name in ("minimum_bytes", "predicted_unfused_bytes", "predicted_fused_bytes", "measured_over_minimum"):
        table[name] = NAN
    table["dram_read_bytes"], table["dram_write_bytes"] = [3e6, 1e6], [1e6, NAN]
    figure = figures.plot_traffic(table, CAPTION)
    assert figure is not None
    assert [round(axes.get_xlim()[1]) for axes in figure.axes] == [4_000_000]
    words = words_of(figure)
    assert "run/mlp" in words
    assert "mean of 6 layers" in words
    assert not [word for word in words if word.startswith(",")]
    assert [word for word in words if "no operation is declared" in word]

"""Layer profile, baseline and sweep as Markdown: the tables that everybody prints, in their usual shape and units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.formats import symbols
from analysis.page import markdown, text
from studies.sweep.tables import is_slower

BY_NSYS = "% by nsys"  # the share beside that by events
MAX_OPERATORS = 15  # rows of the operator table on a page; the CSV has the rest
Tables = Mapping[str, pd.DataFrame]


def sections(tables: Tables) -> list[str]:
    """Blocks of report.md; nothing for a run without such tables."""
    blocks = []
    if "layer_profile" in tables:
        blocks += ["## Layers, level by level", *levels(tables["layer_profile"])]
    for name, title, render in (
        ("layer_tokens", "Per token", tokens),
        ("layer_instrument", "What the instrument costs", instrument),
        ("layer_agreement", "Events against nsys, one and the same run", agreement),
        ("component_kernels", "Kernels of the heaviest components, run alone", component_kernels),
        ("component_launches", "Launching the heaviest components", component_launches),
        ("baseline", "Hugging Face transformers, side by side", baseline),
        ("bottlenecks", "What limits a token", bottlenecks),
        ("baseline_operators", "Operators and kernels of the first setting", operators),
        ("published", "Beside what two student projects published", published),
    ):
        if name in tables:
            blocks += [f"### {title}", render(tables[name]), f"All rows in [tables/{name}.csv](tables/{name}.csv)."]
    if "sweep" in tables:
        blocks += ["## Configuration sweep", *sweep(tables)]
    return blocks


def levels(profile: pd.DataFrame) -> list[str]:
    """One table a level and profile: Avg (ms), Total (ms), Count, per cent of the base."""
    blocks = []
    for (setting, _), rows in profile.groupby(["profile", "level"], sort=False):
        base = markdown.escape(rows["base"].iloc[0])
        body = [
            [
                markdown.escape(r.component),
                _ms(r.avg_ns, 4),
                _ms(r.total_ns),
                _count(r.instances),
                _percent(r.share_frac),
                *([_percent(r.nsys_share_frac)] if rows["nsys_share_frac"].notna().any() else []),
            ]
            for r in _rows(rows, "count")
        ]
        headers = [markdown.escape(setting), "Avg (ms)", "Total (ms)", "Count", f"% of {base}"]
        headers += [BY_NSYS] if rows["nsys_share_frac"].notna().any() else []
        blocks.append(_table(headers, body))
    return blocks


def levels_side_by_side(profile: pd.DataFrame, names: Mapping[str, str]) -> list[str]:
    """One table a level, the profiles beside each other; `names` is what the reader calls each of them."""
    blocks = []
    settings = [name for name in names if name in set(profile["profile"])]
    for _, rows in profile.groupby("level", sort=False):
        by_setting = {name: rows[rows["profile"] == name].set_index("component") for name in settings}
        by_nsys = [BY_NSYS] if rows["nsys_share_frac"].notna().any() else []
        headers = ["component"]
        for name in settings:
            headers += [f"{names[name]}: Avg (ms)", "Count", f"% of {rows['base'].iloc[0]}", *by_nsys]
        body = []
        for component in dict.fromkeys(rows["component"]):
            cells = [component]
            for of in by_setting.values():
                if component in of.index:
                    row = of.loc[component]
                    cells += [_ms(row["avg_ns"], 4), _count(row["count"]), _percent(row["share_frac"])]
                    cells += [_percent(row["nsys_share_frac"])] if by_nsys else []
                else:
                    cells += [text.MISSING] * (3 + len(by_nsys))
            body.append(cells)
        blocks.append(_table(headers, body))
    return blocks


def tokens(table: pd.DataFrame) -> str:
    """Average forward pass, all blocks, throughput."""
    headers = ["profile", "forward pass, GPU (ms)", "all blocks, GPU (ms)", "wall (ms)", "tokens/s (p5 – p95)"]
    body = [
        [
            markdown.escape(r.profile),
            _ms(r.forward_avg_ns),
            _ms(r.blocks_avg_ns),
            _ms(r.token_ns),
            _rate(r),
        ]
        for r in _rows(table)
    ]
    return _table(headers, body)


def instrument(table: pd.DataFrame) -> str:
    headers = ["profile", "attached", "events", "forward pass (ms)", "over nothing", "launching (ms)"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.attached),
            _count(r.events),
            _ms(r.forward_ns),
            text.number(r.over_nothing_frac, "frac"),
            _ms(r.launch_ns),
        ]
        for r in _rows(table)
    ]
    return _table(headers, body, left=2)


def agreement(table: pd.DataFrame) -> str:
    headers = ["profile", "level", "component", "events, as read (µs)", "own (µs)", "events (µs)", "nsys (µs)"]
    headers += ["difference (µs)", "difference", "within 2 %", "within 2 µs"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.level),
            markdown.escape(r.component),
            *(_us(value) for value in (r.read_ns, r.own_ns, r.event_ns, r.nsys_ns, r.difference_ns)),
            text.number(r.difference_frac, "frac"),
            r.within_frac,
            r.within_ns,
        ]
        for r in _rows(table)
    ]
    return _table(headers, body, left=3)


def component_kernels(table: pd.DataFrame) -> str:
    headers = ["profile", "component", "kernel", "source", "self (µs)", "count", "average (µs)"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.component),
            markdown.escape(_kernel(r.kernel)),
            markdown.escape(r.source),
            _us(r.self_ns),
            _count(r.instances),
            _us(r.avg_ns),
        ]
        for r in _rows(table, "count")
    ]
    return _table(headers, body, left=4)


def component_launches(table: pd.DataFrame) -> str:
    headers = ["profile", "component", "of the forward pass", "GPU a call (µs)", "CPU a call (µs)", "CUDA API calls"]
    headers += ["in the API a call (µs)", "launches, nsys", "in launches a call, nsys (µs)"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.component),
            text.number(r.forward_share_frac, "frac"),
            _us(r.gpu_ns),
            _us(r.cpu_ns),
            _count(r.api_calls),
            _us(r.api_ns),
            _count(r.nsys_launches),
            _us(r.nsys_api_ns),
        ]
        for r in _rows(table)
    ]
    return _table(headers, body, left=2)


def baseline(table: pd.DataFrame) -> str:
    headers = ["setting", "tokens/s (p5 – p95)", "p50 (ms)", "p95 (ms)", "kernels a token", "launches a token"]
    headers += ["GPU busy", "of the floor"]
    body = [
        [
            markdown.escape(f"{r.setting}, {r.dtype}"),
            markdown.escape(r.reason) if not text.is_missing(r.reason) else _rate(r),
            _ms(r.token_p50_ns),
            _ms(r.token_p95_ns),
            text.number(r.kernels_per_token),
            text.number(r.launches_per_token),
            text.number(r.busy_frac, "frac"),
            text.number(r.floor_frac, "frac"),
        ]
        for r in _rows(table)
    ]
    return _table(headers, body)


def bottlenecks(table: pd.DataFrame) -> str:
    lines = []
    for (setting, dtype), rows in table.groupby(["setting", "dtype"], sort=False):
        answers = " ".join(markdown.escape(answer) for answer in (rows["answer"].iloc[-1], *rows["answer"].iloc[:-1]))
        lines.append(f"- **{markdown.escape(f'{setting}, {dtype}')}**: {answers}")
    return "\n".join(lines)


def operators(table: pd.DataFrame) -> str:
    """The heaviest operators and kernels of the first setting."""
    first = table.iloc[0]
    of = table[(table["setting"] == first["setting"]) & (table["dtype"] == first["dtype"])].head(MAX_OPERATORS)
    headers = [f"{first['setting']}, {first['dtype']}", "kind", "Self CPU (ms)", "CPU total (ms)", "Self CUDA (ms)"]
    headers += ["CUDA total (ms)", "calls", "share of its kind"]
    body = [
        [
            markdown.escape(_kernel(r.name) if r.kind == "kernel" else text.shorten(r.name, 56)),
            markdown.escape(r.kind),
            *(_ms(value) for value in (r.self_cpu_ns, r.cpu_ns, r.self_cuda_ns, r.cuda_ns)),
            _count(r.calls),
            text.number(r.share_frac, "frac"),
        ]
        for r in _rows(of)
    ]
    return _table([markdown.escape(name) for name in headers], body, left=2)


_AT_OTHER_SHAPES = (
    "The default's time over that of the best combinations at the other shapes (p5 – p95 of the rounds); what is "
    "slower at one of them is not recommended:"
)


def _other_shapes(rows: pd.DataFrame) -> str:
    """A line for each kernel, dtype and combination, the shapes that make it slower in bold."""

    def cell(r: Any) -> str:
        if text.is_missing(r.versus_default):
            return f"{r.shape} {r.verdict}"
        said = f"{r.shape} {r.versus_default:.3f} ({r.versus_default_p5:.3f} – {r.versus_default_p95:.3f})"
        return f"**{said}**" if is_slower(r) else said

    groups = rows.groupby(["op", "variant", "dtype", "combination"], sort=False)
    body = [
        [
            markdown.escape(f"{op} {variant} {dtype}"),
            markdown.escape(combination),
            "yes" if of["mark"].str.contains("recommended").any() else "no",
            ", ".join(cell(r) for r in _rows(of)),
        ]
        for (op, variant, dtype, combination), of in groups
    ]
    return markdown.table_of(["kernel", "combination", "recommended", "at"], body, ["left"] * 4)


def sweep(tables: Tables) -> list[str]:
    """For each kernel the fastest and the slowest combination and why; then what was left out, by reason."""
    blocks = []
    if "sweep_best" in tables:
        headers = ["kernel", "tried", "rounds", "call", "default", "fastest", "default's time over it"]
        headers += ["recommended", "why"]
        body = [
            [
                markdown.escape(f"{r.op} {r.variant} {r.dtype} {r.shape}"),
                _count(r.combinations),
                _count(r.samples),
                markdown.escape(r.calls),
                markdown.escape(r.default),
                markdown.escape(r.fastest),
                text.MISSING if text.is_missing(r.versus_default) else f"{r.versus_default:.3f}",
                markdown.escape(r.recommended) or text.MISSING,
                markdown.escape(r.evidence),
            ]
            for r in _rows(tables["sweep_best"])
        ]
        blocks.append(markdown.table_of(headers, body, ["left", "right", "right", *["left"] * 6]))
    if "sweep_shapes" in tables:
        blocks += [_AT_OTHER_SHAPES, _other_shapes(tables["sweep_shapes"])]
    rows = tables["sweep"]
    left_out = rows[rows["reason"].ne("") | ~rows["verdict"].isin(["timed", "built"])]
    if len(left_out):
        groups = left_out.groupby(["op", "variant", "combination", "verdict", "reason"], sort=False).size()
        listed = [[*map(markdown.escape, key)] for key in groups.index[: markdown.TOP]]
        headers = ["op", "variant", "combination", "left out", "why"]
        blocks += [f"Left out ({len(groups)}):", markdown.table_of(headers, listed, ["left"] * 5)]
    built = rows[rows["verdict"].eq("built") & rows["reason"].eq("")]
    if len(built):
        headers = ["op", "variant", "combination", "registers", "shared memory", "threads", "occupancy", "limiter"]
        body = [
            [
                *(markdown.escape(value) for value in (r.op, r.variant, r.combination)),
                *(_count(value) for value in (r.registers, r.shared_bytes, r.block_threads)),
                text.number(r.occupancy_theoretical_frac, "frac"),
                markdown.escape(r.limiter),
            ]
            for r in _rows(built.head(3 * markdown.TOP))
        ]
        align = [*["left"] * 3, *["right"] * 4, "left"]
        blocks += ["Compiled and not timed (no GPU):", markdown.table_of(headers, body, align)]
    return [*blocks, "All combinations in [tables/sweep.csv](tables/sweep.csv)."]


def published(table: pd.DataFrame) -> str:
    headers = ["figure", "unit", "published", "on", "how", "here", "here by"]
    body = [
        [
            *(markdown.escape(value) for value in (r.figure, r.unit, r.theirs, r.their_machine, r.their_setting)),
            text.number(r.ours),
            markdown.escape(r.our_clock),
        ]
        for r in _rows(table)
    ]
    return _table(headers, body, left=5)


def _kernel(name: Any) -> str:
    """A kernel's function, or a copy as its tool names it."""
    plain = text.clean(name)
    return plain if plain.startswith(("Mem", "[CUDA ", "aten::")) else symbols.short(plain, 56)


def _rows(table: pd.DataFrame, *counts: str) -> Any:
    # a tuple has a method `count`, which hides a column of that name
    renamed = table.rename(columns=dict.fromkeys(counts, "instances")) if counts else table
    return renamed.itertuples(index=False)


def _rate(row: Any) -> str:
    if text.is_missing(row.tokens_per_s):
        return text.MISSING
    return f"{row.tokens_per_s:,.0f} ({row.tokens_per_s_p5:,.0f} – {row.tokens_per_s_p95:,.0f})"


def _ms(ns: Any, digits: int = 3) -> str:
    return text.MISSING if text.is_missing(ns) else f"{float(ns) / 1e6:,.{digits}f}"


def _us(ns: Any) -> str:
    return text.MISSING if text.is_missing(ns) else f"{float(ns) / 1e3:,.2f}"


def _count(value: Any) -> str:
    return text.MISSING if text.is_missing(value) else f"{int(value):,}"


def _percent(frac: Any) -> str:
    return text.MISSING if text.is_missing(frac) else f"{float(frac) * 100:.1f}"


def _table(headers: list[str], body: list[list[str]], left: int = 1) -> str:
    return markdown.table_of(headers, body, ["left"] * left + ["right"] * (len(headers) - left))

"""Check kernels that are wrong on purpose: do the checks of harness/bench.py find each error?

    python -m tests.gpu.mutants [--ops OP …] [--table FILE.csv]     builds every mutant of a source, checks each

A mutant is a rung's source with one change that a programmer could make. For example, it leaves out a tile, a step of
K, a key or a column. Its mask is off by one, it swaps two rows, or it scales an output by 1 + 2^-7. If possible, the
change affects only the last rows, where sums are longest and a term counts least. The program compiles and links each
mutant in place of its rung, as the sweep does (kernels/combinations.py), and checks it at the op's largest shapes on
its own inputs. A row of the table says what found it: the share of its bound that an element, a row or the whole output
reached.

For the other ops it changes outputs instead (`OUTPUTS`): their tolerances do not grow with a sum.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels import build, combinations, objects
from kernels.registry import Op, Shape, ops, short_dtype

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "mutants"
COLUMNS = ("op", "variant", "dtype", "shape_name", "mutant", "of", "caught", "by", "element_share", "row_error_share",
           "row_projection_share", "whole_error_share", "whole_projection_share")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of one file of a rung's source: `was`, which the file has `times` times, becomes `now`."""

    op: str
    variant: str
    dtype: str
    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    times: int = 1

    def text(self) -> str:
        """Return the changed file. Raises: ValueError if the source does not hold the text to change."""
        text = (objects.FOLDER / ops()[self.op].folder / self.file).read_text("utf-8")
        for was, now in self.edits:
            if text.count(was) != self.times:
                raise ValueError(f"{self.file} has {text.count(was)} times what {self.name} changes: {was!r}")
            text = text.replace(was, now)
        return text

    def write(self) -> Path:
        """Write the rung's source into a folder of its own, beside the changed file."""
        folder = objects.FOLDER / ops()[self.op].folder
        place = PLACE / f"{self.variant}-{self.name.replace(' ', '_')}" / folder.name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for path in [*folder.glob("*.h"), *folder.glob("*.cuh"), folder / f"{self.variant}.cu"]:
            shutil.copy(path, place / path.name)
        (place / self.file).write_text(self.text(), encoding="utf-8")
        return place / f"{self.variant}.cu"


def _of(op: str, variant: str, dtype: str, file: str, **edits: Any) -> list[Mutant]:
    """Return the mutants of one file. An edit is (was, now), or several such pairs; a number at its end is `times`."""
    made = []
    for name, edit in edits.items():
        times = edit[-1] if isinstance(edit[-1], int) else 1
        pairs = [part for part in edit if not isinstance(part, int)]
        pairs = [tuple(pairs)] if isinstance(pairs[0], str) else pairs
        made.append(Mutant(op, variant, dtype, name.replace("_", " "), file, tuple(pairs), times))
    return made


_V06_BASE = "    float base[2];\n    raise_largest(scores, to_log2, largest, total, sums, base);"
_LAST = "first_query + ROWS >= tokens"
_OF_TILES = {
    "a_tile": ("tiles = order.rows * order.columns, steps", "tiles = order.rows * order.columns - 1, steps"),
    "a_K_step": ("steps = (k + BK - 1) / BK;", "steps = (k + BK - 1) / BK - 1;"),
}
MUTANTS = (
    *_of(
        "matmul", "v14_fitted_tile", "bfloat16", "fitted_tile.cuh",
        **_OF_TILES,
        sixteen_of_K_in_one_tile=(
            "part < BK / 16; ++part) {\n          const uint64_t a",
            "part < BK / 16; ++part) {\n          if (part == 1 && step == 1 && row == 0 && column == 0) continue;\n"
            "          const uint64_t a",
        ),
        two_rows_changed=(
            "const int in_row = warp * 16 + lane % 8 + lane / 8 % 2 * 8;",
            "const int as_is = warp * 16 + lane % 8 + lane / 8 % 2 * 8;\n"
            "          const int in_row = row + group == 0 && as_is < 2 ? 1 - as_is : as_is;",
        ),
        scaled=(
            "const float* from = sums + first / 2 + half * 4;",
            "float from[4];\n            for (int i = 0; i < 4; ++i) from[i] = sums[first / 2 + half * 4 + i] * 1.0078125f;",
        ),
        a_column_of_bias=(
            "const float low = __low2float(pair)",
            "const float low = column + first + half == 0 && lane % 4 == 0 ? 0.0f : __low2float(pair)",
        ),
    ),
    *_of(
        "matmul", "v18_ping_pong", "bfloat16", "v18_ping_pong.cu",
        **_OF_TILES,
        sixteen_of_K_in_one_tile=(
            "multiply<true>(sums[half], descriptor(at + half",
            "if (part != 1 || step != 1 || row != 0 || column != 0)\n"
            "              multiply<true>(sums[half], descriptor(at + half",
        ),
        two_rows_changed=(
            "const int in_row = half * 64 + warp * 16 + lane % 8 + lane / 8 % 2 * 8;",
            "const int as_is = half * 64 + warp * 16 + lane % 8 + lane / 8 % 2 * 8;\n"
            "          const int in_row = row == 0 && as_is < 2 ? 1 - as_is : as_is;",
        ),
        scaled=(
            "const float* from = sums[half] + j * 8 + pair * 4;",
            "float from[4];\n"
            "            for (int i = 0; i < 4; ++i) from[i] = sums[half][j * 8 + pair * 4 + i] * 1.0078125f;",
        ),
        a_column_of_bias=(
            "packed[pair * 2] = pack(from[0] + shift[pair].x,",
            "packed[pair * 2] = pack(from[0] + (column + j + pair == 0 && lane % 4 == 0 ? 0.0f : shift[pair].x),",
        ),
    ),
    *_of(
        "matmul", "v13_split_k", "float32", "ring.cuh",
        a_tile=(
            "if (row >= m || column >= n) return;",
            "if (row >= m || column >= n || (row >= m - BM && column >= n - BN)) return;",
        ),
        a_K_step=("(call.k - 1) / BK + 1, 0, 0}", "(call.k - 1) / BK, 0, 0}"),
        one_of_K=(
            "multiply_row(sums[y], left[y][deep % 4], right[now], y, now);",
            "if (deep != 5 || piece != 3) multiply_row(sums[y], left[y][deep % 4], right[now], y, now);",
        ),
        two_rows_changed=(
            "float* to = out + static_cast<int64_t>(row) * n + column;\n    if (packets)",
            "float* to = out + static_cast<int64_t>(row < 2 ? 1 - row : row) * n + column;\n    if (packets)",
        ),
        scaled=(
            "const auto write = [&](int row, int column, float4 words) {",
            "const auto write = [&](int row, int column, float4 words) {\n"
            "    words.x *= 1.0078125f, words.y *= 1.0078125f, words.z *= 1.0078125f, words.w *= 1.0078125f;",
        ),
        a_column_of_bias=(
            "make_float4(words.x + shift.x,", "make_float4(words.x + (column == 0 ? 0.0f : shift.x),"
        ),
    ),
    *_of(
        "matmul", "v21_transposed", "bfloat16", "v21_transposed.cu",
        a_tile=("{static_cast<int>(tiles), ALL_THREADS}", "{static_cast<int>(tiles) - 1, ALL_THREADS}"),
        a_K_step=_OF_TILES["a_K_step"],
        sixteen_of_K_in_one_tile=(
            "multiply_transposed(sums, descriptor(at",
            "if (part != 1 || step != 1 || row != 0 || column != 0) multiply_transposed(sums, descriptor(at",
        ),
        a_piece_of_a_warp=("if (lane == 0 && column + warp * 16 < n) {", "if (lane == 0 && (warp | row | piece)) {"),
        two_rows_changed=(
            "swizzled<32>(j + lane / 16 * 8 + lane % 8,",
            "swizzled<32>(row + j == 0 && lane / 16 * 8 + lane % 8 < 2 ? 1 - lane % 8 : j + lane / 16 * 8 + lane % 8,",
        ),
        scaled=(
            "const float* from = sums + j / 2 + eight * 4 + half * 2;",
            "float from[2];\n"
            "          for (int i = 0; i < 2; ++i) from[i] = sums[j / 2 + eight * 4 + half * 2 + i] * 1.0078125f;",
        ),
        a_column_of_bias=("shift[half] = at < n ?", "shift[half] = at > 0 && at < n ?"),
    ),
    *_of(
        "matmul", "v20_two_sums", "bfloat16", "v20_two_sums.cu",
        **_OF_TILES,
        sixteen_of_K_in_one_tile=(
            "multiply<true>(sums, descriptor(at + group",
            "if (part != 1 || step != 1 || tile != 0)\n          multiply<true>(sums, descriptor(at + group",
        ),
        a_piece_of_the_last_tiles=(
            "for (int piece = 0; piece < PIECES; ++piece) write", "for (int piece = 0; piece < PIECES - 1; ++piece) write"
        ),
        two_rows_changed=(
            "swizzled<64>(lane % 8 + lane / 8 % 2 * 8,",
            "swizzled<64>(old_row + group + warp == 0 && lane % 8 + lane / 8 % 2 * 8 < 2 ? 1 - lane % 8\n"
            "                                    : lane % 8 + lane / 8 % 2 * 8,",
        ),
        scaled=(
            "const float* from = sums + piece * 16 + j * 8 + half * 4;",
            "float from[4];\n          for (int i = 0; i < 4; ++i)\n"
            "            from[i] = sums[piece * 16 + j * 8 + half * 4 + i] * 1.0078125f;",
        ),
        a_column_of_bias=(
            "pack(from[0] + shift.x, from[1] + shift.y)",
            "pack(from[0] + (old_column + piece + j + half == 0 && lane % 4 == 0 ? 0.0f : shift.x), from[1] + shift.y)",
        ),
    ),
    *_of(
        "matmul", "v19_one_wave", "float32", "v19_one_wave.cu",
        a_tile=(
            "if (row < m && column < n)",
            "if (row < m && column < n && (row < m - BM || column < n - BN))",
        ),
        a_K_step=("steps = (k + BK - 1) / BK;", "steps = (k + BK - 1) / BK - 1;"),
        one_of_K=(
            "multiply_row(sums[y], left[y][deep % 4], right[now], y, now);",
            "if (deep != 5 || step != 3 || group != 1) multiply_row(sums[y], left[y][deep % 4], right[now], y, now);",
        ),
        a_group_of_warps=("for (int i = 1; i < GROUPS; ++i)", "for (int i = 1; i < GROUPS - 1; ++i)"),
        two_rows_changed=(
            "static_cast<int64_t>(row) * n + column) =",
            "static_cast<int64_t>(row < 2 ? 1 - row : row) * n + column) =",
        ),
        scaled=(
            "make_float4(from[0] + zero, from[1] + zero, from[2] + zero, from[3] + zero);",
            "make_float4(from[0] * 1.0078125f, from[1] * 1.0078125f, from[2] * 1.0078125f, from[3] * 1.0078125f);",
        ),
        a_column_of_bias=(
            "add(mine[packet], packet_at(biases + in_tile * 4));",
            "add(mine[packet], column == 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : packet_at(biases + in_tile * 4));",
        ),
    ),
    *_of(
        "attention", "v05_wgmma", "bfloat16", "v05_wgmma.cu",
        a_tile_of_the_last_rows=(
            "      float base[2];\n      raise_largest",
            "      if (key == 0 && top + 64 >= tokens)\n        for (int i = 0; i < N / 2; ++i) scores[i] = -INFINITY;\n"
            "      float base[2];\n      raise_largest",
        ),
        a_key_of_the_last_rows=(
            "      float base[2];\n      raise_largest",
            "      if (key == 0 && lane % 4 == 0 && top + 64 >= tokens) scores[0] = scores[2] = -INFINITY;\n"
            "      float base[2];\n      raise_largest",
        ),
        two_rows_changed=(
            "swizzled<128>(warp * 16 + lane % 16, i * 2 + lane / 16)",
            "swizzled<128>(work.row + group + warp == 0 && lane % 16 < 2 ? 1 - lane % 16 : warp * 16 + lane % 16,"
            " i * 2 + lane / 16)",
        ),
        scaled=("sums[j] *= inverse, test", "sums[j] *= inverse * 1.0078125f, test"),
    ),
    *_of(
        "attention", "v05_wgmma", "bfloat16", "tiles.cuh",
        mask_off_by_one=("if (ahead > i / 2 % 2", "if (ahead - 1 > i / 2 % 2"),
        columns_of_the_scores=(
            "for (int part = 0; part < 4; ++part)\n    multiply<false>",
            "for (int part = 0; part < 3; ++part)\n    multiply<false>",
        ),
    ),
    *_of(
        "attention", "v06_small", "bfloat16", "small.cuh",
        a_tile_of_the_last_rows=(
            _V06_BASE,
            "    if (tile == 0 && row + ROWS >= tokens)\n      for (int i = 0; i < KEYS / 2; ++i) scores[i] = -INFINITY;\n"
            + _V06_BASE,
        ),
        a_key_of_the_last_rows=(
            _V06_BASE,
            "    if (tile == 0 && lane % 4 == 0 && row + ROWS >= tokens) scores[0] = scores[2] = -INFINITY;\n" + _V06_BASE,
        ),
        scaled=("merged[i] *= inverse, test", "merged[i] *= inverse * 1.0078125f, test"),
        two_rows_changed=(
            "reinterpret_cast<uint4*>(to + at * pitch + column) =",
            "reinterpret_cast<uint4*>(to + (row == 0 && at < 2 ? 1 - at : at) * pitch + column) =",
        ),
    ),
    *_of("attention", "v06_small", "bfloat16", "tiles.cuh",
         mask_off_by_one=("if (ahead > i / 2 % 2", "if (ahead - 1 > i / 2 % 2")),
    *_of(
        "attention", "v03_tiled", "float32", "tiled_block.cuh",
        a_tile_of_the_last_rows=(
            "tile = max(0, first_query - window + 1) / KEYS + first;",
            f"tile = max(0, first_query - window + 1) / KEYS + first + ({_LAST} && first_query > 0);",
        ),
        a_key_of_the_last_rows=(
            "#pragma unroll\n    for (int i = 0; i < MY_ROWS; ++i) {\n      float most",
            f"    if (first_key == 0 && my_column == 1 && {_LAST})\n"
            "      for (int i = 0; i < MY_ROWS; ++i) scores[i][1] = -INFINITY;\n"
            "#pragma unroll\n    for (int i = 0; i < MY_ROWS; ++i) {\n      float most",
        ),
        mask_off_by_one=("if (ahead > i - j ||", "if (ahead > i - j + 1 ||"),
        columns_of_the_scores=("deep < D; deep += 4", "deep < D - 4; deep += 4"),
    ),
    *_of(
        "attention", "v03_tiled", "float32", "v03_tiled.cu",
        two_rows_changed=(
            "packet.store(out + base + (query + i) * D",
            "packet.store(out + base + (query + i < 2 ? 1 - query - i : query + i) * D",
        ),
        scaled=("const float value = sums[i][j] * inverse;", "const float value = sums[i][j] * inverse * 1.0078125f;"),
    ),
    *_of(
        "attention", "v07_split_keys", "float32", "v07_split_keys.cu",
        a_block_of_the_last_rows=(
            "const float factor = exp2_fast(",
            "const float factor = split == 1 && first_query + row >= tokens - 16 ? 0.0f : exp2_fast(",
        ),
        natural_exponentials_in_the_merge=("(other[split] - most) * to_log2", "(other[split] - most) * scale"),
        two_rows_changed=(
            "packet.store(out + base + (first_query + row) * D",
            "packet.store(out + base + (first_query + row < 2 ? 1 - first_query - row : first_query + row) * D",
        ),
        scaled=(
            "const float inverse = __fdividef(1.0f, weight);",
            "const float inverse = __fdividef(1.0f, weight) * 1.0078125f;",
        ),
    ),
    *(
        mutant
        for dtype in ("float32", "bfloat16")
        for mutant in (
            *_of(
                "softmax", "v05_early", dtype, "causal_row.cuh",
                a_tile_of_a_row=(
                    "    if (any_visible(k)) {\n#pragma unroll\n      for (int j = 0; j < WIDTH; ++j) {\n"
                    "        value[k][j] = exp_fast",
                    "    if (any_visible(k) && !(k == 0 && lane < 8 && visible == tk)) {\n#pragma unroll\n"
                    "      for (int j = 0; j < WIDTH; ++j) {\n        value[k][j] = exp_fast",
                ),
                a_column_of_the_last_sums=(
                    "sum += value[k][j];",
                    "if (k > 0 || j > 0 || lane > 0 || visible < tk) sum += value[k][j];",
                ),
                mask_off_by_one=("column < visible ? to_float", "column <= visible ? to_float"),
                scaled=("Packet<T, WIDTH>::scaled(value[k], factor)", "Packet<T, WIDTH>::scaled(value[k], factor * 1.0078125f)"),
            ),
            *_of(
                "softmax", "v05_early", dtype, "v05_early.cu",
                two_rows_changed=(
                    "scores + start, out + start,",
                    "scores + start, out + static_cast<int64_t>(row < 2 ? 1 - row : row) * tk,",
                ),
            ),
        )
    ),
)  # fmt: skip


def shapes(op: Op, variant: str, dtype: str) -> list[Shape]:
    """Return the shapes for a mutant's check: of those that its own kernel runs, the most operations, the longest axis."""
    known = {
        "matmul": ("square_4096", "square_16384", "mlp_proj"),
        "attention": ("b8_t1024", "b1_t16384"),
        "softmax": ("b8_t1024", "b1_t4096"),
    }
    own = {"v06_small": ("b8_t1024",), "v07_split_keys": ("b1_t1024",), "v18_ping_pong": ("qkv_b8", "fc_b8"),
           "v19_one_wave": ("proj",), "v20_two_sums": ("qkv_b8", "mlp_proj_b8"),
           # on a GPU of 132 SMs or more; with fewer, v20 runs there
           "v21_transposed": ("proj", "mlp_proj")}  # fmt: skip
    names = own.get(variant, known[op.name])
    return [op.shapes[name] for name in names if op.variants[variant].takes(op.shapes[name], dtype)]


# Building ----------------------------------------------------------------------------------------------------


def build_all(wanted: Sequence[Mutant]) -> tuple[dict[Mutant, Path], dict[Mutant, str]]:
    """Build the ops' extensions, then the mutants. Return each mutant's library, or why it does not compile or link."""
    import torch

    nvcc = build.find_nvcc()
    if nvcc is None:
        raise SystemExit("nvcc was not found: mutants are compiled with it.")
    for folder in dict.fromkeys(ops()[mutant.op].folder for mutant in wanted):
        build.extension(folder)
    major, minor = torch.cuda.get_device_capability()
    made = {mutant: combinations.Combination(mutant.write(), (("MUTANT", 1),), ()) for mutant in wanted}
    built = combinations.compile_all(nvcc, made.values(), 10 * major + minor, _quiet)
    failed = combinations.link_all(built.values(), _quiet)
    reasons = {mutant: built[one].errors or failed.get(one, "") for mutant, one in made.items()}
    libraries = {mutant: combinations.library_of(built[one]) for mutant, one in made.items() if not reasons[mutant]}
    return libraries, {mutant: reason for mutant, reason in reasons.items() if reason}


def _quiet(what: str, done: int, of: int) -> None:
    if done == of:
        print(f"mutants: {what} {of}", file=sys.stderr, flush=True)


# Checking ----------------------------------------------------------------------------------------------------


def remembering(op: Op) -> Op:
    """Return the op with a cache: it computes reference and bounds of each piece once for all mutants of outputs."""

    def kept(function: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[Any, Any] = {}

        def call(inputs: tuple[Any, ...], *rest: Any) -> Any:
            key = tuple(
                (value.data_ptr(), tuple(value.shape)) if hasattr(value, "data_ptr") else value for value in inputs
            )
            if key not in known:
                known[key] = function(inputs, *rest)
            return known[key]

        return call

    reference = kept(lambda inputs: op.reference(*inputs))
    spread = kept(op.error_spread) if op.error_spread else None
    return dataclasses.replace(
        op, reference=lambda *inputs: reference(inputs), allowed_error=kept(op.allowed_error), error_spread=spread
    )


def row(op: Op, variant: str, dtype: str, shape: Shape, mutant: str, of: str, check: Any) -> dict[str, Any]:
    """Return a row of the table."""
    shares = {"element": check.tolerance_used, **check.norms}
    by = [name for name, share in shares.items() if not share <= 1.0] or ([check.note] if check.note else [])
    return {
        "op": op.name, "variant": variant, "dtype": short_dtype(dtype), "shape_name": op.shape_name(shape),
        "mutant": mutant, "of": of, "caught": "yes" if not check.passed else "no", "by": ", ".join(by),
        **{f"{name.replace(' ', '_')}_share": f"{share:.3g}" for name, share in shares.items()},
    }  # fmt: skip


def check_all(libraries: dict[Mutant, Path]) -> Iterator[dict[str, Any]]:
    """Yield a row for each mutant and shape, and one for the correct kernel (mutant "none")."""
    import torch

    from harness import bench
    from kernels.variants import calling

    cells = {(mutant.op, mutant.variant, mutant.dtype): None for mutant in libraries}
    for name, variant, dtype in cells:
        for shape in shapes(ops()[name], variant, dtype):
            op = remembering(ops()[name])
            check = functools.partial(
                bench.compare, op, variant, op.make_inputs(shape, dtype, seed=7, device="cuda"), "random",
                op.variants[variant].fn,
            )  # fmt: skip
            yield row(op, variant, dtype, shape, "none", "", check())
            for mutant, library in libraries.items():
                if (mutant.op, mutant.variant, mutant.dtype) == (name, variant, dtype):
                    with calling(op.folder, combinations.load(library, op.folder)):
                        yield row(op, variant, dtype, shape, mutant.name, mutant.file, check())
            del op, check
            torch.cuda.empty_cache()


# Outputs -----------------------------------------------------------------------------------------------------


def _rows(value: Any) -> Any:
    return value.reshape(-1, value.shape[-1])


def _without_tile(value: Any) -> None:
    rows = _rows(value)
    rows[-min(len(rows), 16) :, -min(rows.shape[1], 16) :] = 0.0


def _without_column(value: Any) -> None:
    _rows(value)[:, value.shape[-1] // 2] = 0.0


def _without_row(value: Any) -> None:
    _rows(value)[-1] = 0.0


def _rows_changed(value: Any) -> None:
    rows = _rows(value) if value.shape[-1] < value.numel() else value.reshape(-1, 1)
    rows[[0, -1]] = rows[[-1, 0]]


def _columns_moved(value: Any) -> None:
    rows = _rows(value)
    rows[-1] = rows[-1].roll(1)


def _scaled(value: Any) -> None:
    value.mul_(1 + 2.0**-7)


OUTPUTS = {
    "a tile is zero": _without_tile,
    "a column is zero": _without_column,
    "a row is zero": _without_row,
    "two rows changed": _rows_changed,
    "a row is moved by one": _columns_moved,
    "scaled": _scaled,
}


def output_rows(op: Op, variant: str, dtype: str, shape: Shape, device: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each mutant of an output, and one for the correct output; on a CPU, of the PyTorch chain."""
    import torch

    from harness import bench

    op = remembering(op)
    inputs = op.make_inputs(shape, dtype, seed=7, device=device)
    right = bench.outputs((op.call("torch") if device == "cpu" else op.variants[variant].fn)(*inputs))

    def judged(mutant: str, change: Callable[[Any], None]) -> dict[str, Any]:
        wrong = tuple(value.clone().contiguous() for value in right)
        change(wrong[-1])
        if mutant != "none" and all(torch.equal(a, b) for a, b in zip(wrong, right, strict=True)):
            raise ValueError(f"{mutant} changes nothing of {op.name} at {shape}")
        return row(op, variant, dtype, shape, mutant, "output", bench.compare(op, variant, inputs, "random", lambda *_: wrong,
                   "torch" if device == "cpu" else ""))  # fmt: skip

    yield judged("none", lambda value: None)
    for name, change in OUTPUTS.items():
        yield judged(name, change)


# Program -----------------------------------------------------------------------------------------------------


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def main() -> int:
    """See the module's docstring. Return 1 if a check passed a mutant, or failed the correct kernel."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", nargs="+", help="only these (default: all)")
    parser.add_argument("--table", type=Path, help="write the table here")
    options = parser.parse_args()
    wanted = [mutant for mutant in MUTANTS if not options.ops or mutant.op in options.ops]
    libraries, failed = build_all(wanted)
    for mutant, reason in failed.items():
        print(f"{mutant.variant} {mutant.name} was not built: {reason}", file=sys.stderr)
    found: list[dict[str, Any]] = []

    def keep(rows: Iterator[dict[str, Any]]) -> None:
        for one in rows:
            found.append(one)
            print(*(one.get(name, "") for name in COLUMNS[:8]), sep="  ", flush=True)
            if options.table:
                options.table.write_text(text(found), encoding="utf-8")

    keep(check_all(libraries))
    sources = {mutant.op for mutant in MUTANTS}
    for op in ops().values():
        if op.name in sources or (options.ops and op.name not in options.ops):
            continue
        for dtype in op.dtypes:
            keep(output_rows(op, op.best_for(dtype), dtype, op.bench_shape, "cuda"))
    missed = [one for one in found if (one["caught"] == "yes") != (one["mutant"] != "none")]
    print(f"{len(found)} checks, {len(missed)} not as they should be, {len(failed)} mutants not built")
    return int(bool(missed or failed))


if __name__ == "__main__":
    raise SystemExit(main())

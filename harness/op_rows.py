"""Write ops.csv: bytes and FLOPs of every leaf range by a model, for an analysis without torch and without a GPU.

Conventions, for one leaf range of one step; N = B T rows, e = bytes of an element, Tk = cached + new tokens:
- minimum_bytes: each input byte that the result depends on read once, each output written once, for any kernel.
- predicted_unfused_bytes: what the eager kernels of the range move, each kernel reading its inputs from DRAM and
  writing its outputs there. Measured under ncu, an output that stays in the L2 cache is written back later and
  may be missing from the measurement; the last writes before a kernel ends are the likeliest.
- predicted_fused_bytes: traffic of the fused variant in kernels.registry; blank without one. In a chain of ranges, the
  last range has the number and the ranges that fusion removes have 0.
- flops: additions and multiplications; a transcendental function counts one. A GEMM counts 2 M N K, including masked
  scores, because dense GEMMs compute them.
Residual additions run in `h.N` itself, which is no leaf, so they have no row.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.formats.run import OPS
from harness.gpt2 import TORCH_SOFTMAX, GPT2Config
from harness.workloads import Workload
from kernels import registry
from kernels.attention_decode.op import HEAD_SIZE
from kernels.ceilings import COPY_SYMBOL

BENCH_DTYPE = "float32"
MERGED_APART = "with merge_heads, a kernel of its own"  # the note of a range
ALL_VARIANTS = ("softmax",)  # ops whose variants the report compares one by one
_VIEWS = frozenset({"chunk", "transpose", "view", "unflatten", "flatten"})  # components that launch nothing
_PRODUCTS = frozenset({"addmm", "bmm", "matmul"})
COPY_BYTES = 2 << 30  # read, and as many written: gigabytes, because the last writes stay in L2
# 7680 is a multiple of all tiles of cuBLAS, 320 included. At 8192 it computes 1.6 % more, and ncu counts this padding.
GEMMS = {"gemm_fp32": (4096, "float32"), "gemm_bf16": (7680, "bfloat16")}
ID_BYTES = 8  # int64 token ids


@dataclass(frozen=True)
class OpRow:
    """One row of ops.csv; None is written as an empty cell."""

    op: str
    range: str
    shape: tuple[int, ...]
    flops: int | None
    minimum_bytes: int | None
    predicted_unfused_bytes: int | None
    predicted_fused_bytes: int | None = None
    variant: str = TORCH_SOFTMAX
    symbols: tuple[str, ...] = ()
    workload: str = ""
    ordinal: int = 0
    dtype: str = "float32"
    note: str = ""

    def cells(self) -> list[object]:
        row = {name: getattr(self, name) for name in OPS.names}
        row["symbols"] = ";".join(self.symbols)
        row["shape"] = "x".join(map(str, self.shape))
        row["dtype"] = registry.short_dtype(self.dtype) if self.dtype in registry.ITEM_BYTES else self.dtype
        return ["" if row[name] is None else row[name] for name in OPS.names]


def embeddings(batch: int, tokens: int, c: int, e: int) -> OpRow:
    """Return the row of the embeddings: gather B T token rows, and add T position rows.

    Eager runs two kernels: the gather writes B T rows, and the addition reads and writes them again.
    """
    rows, positions, ids = batch * tokens * c * e, tokens * c * e, batch * tokens * ID_BYTES
    minimum = ids + rows + positions + rows
    return OpRow("embeddings", "embeddings", (batch, tokens, c), batch * tokens * c, minimum, minimum + 2 * rows)


def layernorm(name: str, n: int, c: int, e: int) -> OpRow:
    """Return the row of a layernorm of (N, C), which also reads weight and bias.

    The eager kernel also stores mean and 1/std of each row in fp32. An element takes 7 FLOP: sum, centre, square, sum,
    scale, weight, bias.
    """
    minimum = 2 * n * c * e + 2 * c * e
    return OpRow("layernorm", name, (n, c), 7 * n * c, minimum, minimum + 2 * n * 4)


def linear(name: str, m: int, n: int, k: int, e: int, bias: bool = True, copied: int = 0) -> OpRow:
    """Return the row of (M, K) x (K, N) + bias (N): each operand is read once, the result written once.

    Its shape is M x N x K. `copied` is the number of elements of the result that eager copies once more (read + write).
    """
    minimum = (m * k + k * n + m * n + (n if bias else 0)) * e
    flops = 2 * m * n * k + (m * n if bias else 0)
    return OpRow("linear", name, (m, n, k), flops, minimum, minimum + 2 * copied * e)


def scores(batch: int, heads: int, tq: int, tk: int, hs: int, e: int) -> OpRow:
    """Return the row of the scores (B, nh, Tq, Tk) of q (B, nh, Tq, hs) and k (B, nh, Tk, hs): one batched GEMM.

    The GEMM reads strided views. From B = 2 on, PyTorch cannot view q as one batch, so eager copies it.
    """
    q, k, out = batch * heads * tq * hs, batch * heads * tk * hs, batch * heads * tq * tk
    minimum = (q + k + out) * e
    copied = q if batch > 1 and tq > 1 else 0
    shape = (batch, heads, tq, tk, hs)
    return OpRow("scores", "attn/scores", shape, 2 * out * hs, minimum, minimum + 2 * copied * e)


def values(batch: int, heads: int, tq: int, tk: int, hs: int, e: int) -> OpRow:
    """Return the row of the weights (B, nh, Tq, Tk) times v (B, nh, Tk, hs): (B, Tq, C).

    If Tq > 1, eager copies the result to merge the heads.
    """
    weights, v, out = batch * heads * tq * tk, batch * heads * tk * hs, batch * heads * tq * hs
    minimum = (weights + v + out) * e
    copied = out if tq > 1 else 0
    shape = (batch, heads, tq, tk, hs)
    return OpRow("values", "attn/values", shape, 2 * weights * hs, minimum, minimum + 2 * copied * e)


def gelu(n: int, inner: int, e: int) -> OpRow:
    """Return the row of GELU over (N, inner): one kernel that reads and writes each element.

    The tanh form takes 9 FLOP an element: x³, two fused constants, tanh, 1 +, half x.
    """
    return OpRow("gelu", "mlp/act", (n, inner), 9 * n * inner, 2 * n * inner * e, 2 * n * inner * e)


def softmax_chain(shape: tuple[int, ...], dtype: str, softmax: str) -> list[OpRow]:
    """Return the rows of the op `softmax`, with the numbers of its declaration in kernels.registry.

    The unfused chain has two ranges. `mask` is scale and masked_fill: all of the declaration's unfused model but the
    softmax itself. `softmax` reads and writes all scores, -inf included. A fused variant has one range.
    """
    op = registry.ops()["softmax"]
    elements = 1
    for size in shape:
        elements *= size
    passes = 2 * elements * registry.item_bytes(dtype)
    unfused, minimum = op.unfused_bytes(shape, dtype), op.minimum_bytes(shape, dtype)
    if softmax == TORCH_SOFTMAX:
        note = "chain of attn/mask and attn/softmax"
        return [
            OpRow("softmax", "attn/mask", shape, elements, minimum, unfused - passes, 0, note=f"{note}: absorbed"),
            OpRow(
                "softmax",
                "attn/softmax",
                shape,
                4 * elements,
                passes,
                passes,
                op.fused_bytes(shape, dtype),
                note=f"{note}: fused bytes of {op.best} for both",
            ),
        ]
    return [_declared(op, softmax, "attn/softmax", shape, dtype, op.fused_bytes(shape, dtype, softmax))]


def _declared(
    op: registry.Op, variant: str, name: str, shape: tuple[int, ...], dtype: str, fused: int | None, note: str = ""
) -> OpRow:
    """Return the row of one launch of a variant, with the numbers of its op's declaration."""
    return OpRow(
        op.name, name, shape, op.flops(shape), op.minimum_bytes(shape, dtype), op.unfused_bytes(shape, dtype), fused,
        variant=variant, symbols=op.variant(variant).symbols, note=note,
    )  # fmt: skip


def attention_apart(batch: int, heads: int, tq: int, tk: int, hs: int, dtype: str, softmax: str) -> list[OpRow]:
    """Return the rows of attention from scores to values, behind which our kernel merges the heads of a prompt."""
    e = registry.item_bytes(dtype)
    return [
        scores(batch, heads, tq, tk, hs, e),
        *softmax_chain((batch, heads, tq, tk), dtype, softmax),
        replace(values(batch, heads, tq, tk, hs, e), note=MERGED_APART if tq > 1 else ""),
    ]


def fused_row(op: str, name: str, shape: tuple[int, ...], dtype: str, note: str = "") -> OpRow:
    """Return a range that is one op of kernels.registry in its best variant, numbers from its declaration."""
    declared = registry.ops()[op]
    best = declared.variant(declared.best_for(dtype))
    return _declared(declared, best.name, name, shape, dtype, best.bytes_model(shape, dtype), note)


def fused_step_rows(config: GPT2Config, workload: Workload, dtype: str, softmax: str) -> list[OpRow]:
    """As `step_rows`, of the model with ops="fused": additions inside layernorms, the bias of fc inside its GELU."""
    e, c, inner = registry.item_bytes(dtype), config.n_embd, config.inner
    batch, tokens, tk, heads, hs = workload.batch, workload.tokens, workload.total, config.n_head, config.head_size
    n = batch * tokens
    if tokens == 1 and hs == HEAD_SIZE:
        attention = [fused_row("attention_decode", "attn/attend", (batch, heads, tk, hs), dtype)]
    else:
        attention = attention_apart(batch, heads, tokens, tk, hs, dtype, softmax)
    if config.activation_function == "gelu":  # the exact form has no kernel
        activated = [linear("mlp/fc", n, inner, c, e), gelu(n, inner, e)]
    else:
        activated = [
            linear("mlp/fc", n, inner, c, e, bias=False),
            fused_row("bias_gelu", "mlp/act", (n, inner), dtype),
        ]
    block = [
        fused_row("residual_layernorm", "ln_1", (n, c), dtype),
        replace(linear("attn/qkv", n, 3 * c, c, e, copied=2 * n * c), note="with the appends to the KV cache"),
        *attention,
        linear("attn/proj", n, c, c, e),
        fused_row("residual_layernorm", "ln_2", (n, c), dtype),
        *activated,
        linear("mlp/proj", n, c, inner, e),
    ]
    rows = [fused_row("encoder", "embeddings", (batch, tokens, c), dtype)]
    for index in range(config.n_layer):
        first = [layernorm("ln_1", n, c, e), *block[1:]]  # nothing is to be added yet
        rows += [replace(row, range=f"h.{index}/{row.range}") for row in (block if index else first)]
    rows += [
        fused_row("residual_layernorm", "ln_f", (n, c), dtype),
        linear("lm_head", n, config.vocab_size, c, e, bias=False),
    ]
    return _of_step(rows, "gpt2_fused_ops", workload, dtype)


def best_step_rows(
    config: GPT2Config,
    workload: Workload,
    dtype: str,
    softmax: str,
    on_gpu: bool = False,
) -> list[OpRow]:
    """As `step_rows`, of the model with ops="best": also the attention of a prompt, products and GELU are our kernels.

    A product of one row is PyTorch's, but for the LM head `on_gpu`. There bf16 prompts take fewer launches: attention
    merges the heads, and fc includes GELU. A range that does more than its op says so in `note`.
    """
    e, c, inner = registry.item_bytes(dtype), config.n_embd, config.inner
    batch, tokens, tk, heads, hs = workload.batch, workload.tokens, workload.total, config.n_head, config.head_size
    n, launches = batch * tokens, on_gpu and dtype == "bfloat16"

    def product(name: str, columns: int, depth: int, note: str = "") -> OpRow:
        if n == 1:
            return replace(linear(name, n, columns, depth, e), note=note)
        return fused_row("matmul", name, (n, columns, depth), dtype, note)

    def attention(index: int) -> list[OpRow]:
        if tokens == 1 and hs == HEAD_SIZE:
            return [fused_row("attention_decode", "attn/attend", (batch, heads, tk, hs), dtype)]
        if hs == HEAD_SIZE and tokens == tk and config.scale(index) == hs**-0.5:
            note = "with merged heads, in the same launch" if launches else MERGED_APART
            return [fused_row("attention", "attn/attend", (batch, heads, tokens, hs), dtype, note)]
        return attention_apart(batch, heads, tokens, tk, hs, dtype, softmax)

    if config.activation_function == "gelu":  # the exact form has no kernel
        activated = [product("mlp/fc", inner, c), gelu(n, inner, e)]
    elif launches and n > 1 and c % 8 == 0 and inner % 8 == 0:
        activated = [product("mlp/fc", inner, c, "with the activation, in the same launch")]
    else:
        activated = [product("mlp/fc", inner, c), fused_row("gelu", "mlp/act", (n, inner), dtype)]
    rows = [fused_row("encoder", "embeddings", (batch, tokens, c), dtype)]
    for index in range(config.n_layer):
        block = [
            fused_row("residual_layernorm" if index else "layernorm", "ln_1", (n, c), dtype),
            product("attn/qkv", 3 * c, c, "with the appends to the KV cache"),
            *attention(index),
            product("attn/proj", c, c),
            fused_row("residual_layernorm", "ln_2", (n, c), dtype),
            *activated,
            product("mlp/proj", c, inner),
        ]
        rows += [replace(row, range=f"h.{index}/{row.range}") for row in block]
    rows.append(fused_row("residual_layernorm", "ln_f", (n, c), dtype))
    if on_gpu and n == 1:
        rows.append(fused_row("gemv", "lm_head", (config.vocab_size, c), dtype))
    else:
        rows.append(linear("lm_head", n, config.vocab_size, c, e, bias=False))
    return _of_step(rows, "gpt2_best", workload, dtype)


def _of_step(rows: Iterable[OpRow], root: str, workload: Workload, dtype: str) -> list[OpRow]:
    return [
        replace(row, range=f"{root}/{workload.step}/{row.range}", workload=workload.name, dtype=dtype) for row in rows
    ]


def step_rows(config: GPT2Config, workload: Workload, dtype: str, softmax: str) -> list[OpRow]:
    """Return all leaf ranges of one step, in the order in which they run, with full paths.

    qkv: its results are q and the cache's new keys and values, each written once at the least; eager writes them
    once as the GEMM's result and then copies keys and values to the cache.
    """
    e, c, inner = registry.item_bytes(dtype), config.n_embd, config.inner
    batch, tokens, tk, heads, hs = workload.batch, workload.tokens, workload.total, config.n_head, config.head_size
    n = batch * tokens
    root = "gpt2" if softmax == TORCH_SOFTMAX else "gpt2_fused"
    block = [
        layernorm("ln_1", n, c, e),
        replace(linear("attn/qkv", n, 3 * c, c, e, copied=2 * n * c), note="with the appends to the KV cache"),
        scores(batch, heads, tokens, tk, hs, e),
        *softmax_chain((batch, heads, tokens, tk), dtype, softmax),
        values(batch, heads, tokens, tk, hs, e),
        linear("attn/proj", n, c, c, e),
        layernorm("ln_2", n, c, e),
        linear("mlp/fc", n, inner, c, e),
        gelu(n, inner, e),
        linear("mlp/proj", n, c, inner, e),
    ]
    rows = [embeddings(batch, tokens, c, e)]
    for index in range(config.n_layer):
        rows += [replace(row, range=f"h.{index}/{row.range}") for row in block]
    rows += [layernorm("ln_f", n, c, e), linear("lm_head", n, config.vocab_size, c, e, bias=False)]
    return _of_step(rows, root, workload, dtype)


def bench_variants(op: registry.Op) -> list[str]:
    """Return the variants whose single launches are captured: the unfused chain and our best variant.

    The chain gives the prediction of what fusion wins, and the best variant tests it. None for a baseline of one
    kernel, or with matrix products, since the planner does not fuse across them.
    """
    kernels = [name for name in op.chain if name not in _VIEWS]
    if len(kernels) < 2 or not _PRODUCTS.isdisjoint(kernels):
        return []
    return [name for name in op.variants if op.name in ALL_VARIANTS or name in (op.baseline, op.best)]


def bench_rows(launches: Iterable[tuple[str, str]]) -> list[OpRow]:
    """Return one launch of each (op, variant) under bench/<op>/<variant>."""
    rows = []
    for op_name, name in launches:
        op = registry.ops()[op_name]
        shape, dtype, variant = op.bench_shape, BENCH_DTYPE, op.variant(name)
        # For a variant of several launches, the row holds the bytes after fusion; for a fused one, its own bytes.
        one_launch = len(variant.symbols) == 1 or variant.kind == "compile"
        fused = op.fused_bytes(shape, dtype, name if one_launch else op.best)
        row = _declared(op, name, f"bench/{op.name}/{name}", shape, dtype, fused)
        rows.append(replace(row, workload=op.shape_name(shape), dtype=dtype))
    return rows


def selftest_rows() -> list[OpRow]:
    """Return the known truths: bytes of a copy, FLOPs of square GEMMs (2 n³)."""
    note = f"read={COPY_BYTES};write={COPY_BYTES}"
    copy = OpRow("selftest", "selftest/copy", (COPY_BYTES,), None, 2 * COPY_BYTES, None, variant="copy", note=note)
    rows = [replace(copy, symbols=(COPY_SYMBOL,), dtype="uint8")]
    for name, (n, dtype) in GEMMS.items():
        minimum = 3 * n * n * registry.item_bytes(dtype)
        rows.append(
            OpRow("selftest", f"selftest/{name}", (n, n, n), 2 * n**3, minimum, None, variant=name, dtype=dtype)
        )
    return [replace(row, workload="selftest") for row in rows]


def number(rows: Iterable[OpRow]) -> Iterator[OpRow]:
    """Give each row its ordinal: the number of earlier rows with its range."""
    seen: Counter[str] = Counter()
    for row in rows:
        yield replace(row, ordinal=seen[row.range])
        seen[row.range] += 1


def ops_csv(rows: Sequence[OpRow]) -> str:
    """Return the text of ops.csv, rows in the order of the program."""
    return OPS.text(row.cells() for row in number(rows))

"""Declare the gradients of softmax, layernorm and GELU, whose forward passes have folders of their own.

    softmax_backward     of_x[i, j] = scale p[i, j] (g[i, j] - sum_k p[i, k] g[i, k])
    layernorm_backward   of_x[i, j] = s_i (h[i, j] - mean_k h[i, k] - z[i, j] mean_k(h[i, k] z[i, k])),   h = g w
                         of_w[j] = sum_i g[i, j] z[i, j],   of_b[j] = sum_i g[i, j],   z = (x - mean) s
    gelu_backward        of_x = g (q + x q (1 - q) t'),   q = 1 / (1 + e^-t),   t = 2 sqrt(2 / pi) (x + 0.044715 x^3)

`softmax_backward` takes the causal probabilities p that `softmax` returns, which are 0 above the diagonal: our kernels
do not read them there, nor the gradient. `layernorm_backward` computes mean and scale again, since it reads the whole
row anyway. GELU is the tanh form.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernels.gelu.op import CUBIC, SQRT_2_PI
from kernels.normalised import EPS, UNIT, awkward_rows, in_one_block, in_packets
from kernels.registry import LARGE, TIME, Hypothesis, Op, Shape, Tensor, Variant, dtype_name, item_bytes, register
from kernels.softmax import op as softmax
from kernels.variants import (
    compile_variant,
    cuda_variant,
    library_variant,
    prepared_first,
    quack_variant,
    random_normal,
    torch_variant,
    triton_variant,
)


def _rounding(like: Any, reference: Any) -> Any:
    """Return half an ulp of bf16 where it is the dtype of `like`, and the smallest normal number."""
    bf16 = dtype_name(like.dtype) == "bfloat16"
    return (2.0**-8 * (1.0 + 2.0**-8) * reference.abs() if bf16 else 0.0) + 2.0**-125


def _cuda(name: str, of: str, idea: str, bytes_model: Callable[[Shape, str], int], **more: Any) -> Variant:
    return cuda_variant("backward", name, idea, bytes_model, binding=f"run_{of}<{{launcher}}>", **more)


def _ahead(what: str, least: float) -> Hypothesis:
    """Bound the time by that of another variant, at the bench shape and at every other large one."""
    return Hypothesis(TIME, what, high=1 / least, counters=False, least_bytes=LARGE)


# --- softmax -------------------------------------------------------------------------------------------------
def softmax_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of each visible element of both operands read once, each output written once."""
    return 2 * softmax.minimum_bytes(shape, dtype) - math.prod(shape) * item_bytes(dtype)


def softmax_sectors(shape: Shape, dtype: str) -> int:
    """Return the bytes if each 32-byte sector with a visible element is read once."""
    return 2 * softmax.causal_bytes(shape, dtype) - math.prod(shape) * item_bytes(dtype)


def softmax_dense_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of both operands read once, each output written once."""
    return 3 * math.prod(shape) * item_bytes(dtype)


def softmax_unfused_bytes(shape: Shape, dtype: str) -> int:
    """PyTorch writes the gradient without the scale, and reads it again."""
    return 5 * math.prod(shape) * item_bytes(dtype)


def softmax_reference(gradient: Any, probabilities: Any, scale: float) -> Any:
    """Compute the gradient of the scores in float64."""
    g, p = gradient.double(), probabilities.double()
    return scale * p * (g - (p * g).sum(-1, keepdim=True))


SOFTMAX_WHY = (
    "With u = 2^-24, the sum of Tk products is off by (Tk / 32 + 32) u sum |p g|, the rest by 8 u (|g| + |sum p g|), "
    "weighted by |scale p|. bf16 adds half an ulp of the output, 2^-8; PyTorch rounds once more, before the scale, "
    "and Liger's kernel sums products and their total in bf16: 2^-8 (|g| + 8 sum |p g|) more, weighted likewise"
)


def softmax_allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of the gradient, see SOFTMAX_WHY."""
    gradient, probabilities, scale = inputs
    g, p = gradient.double(), probabilities.double().abs()
    terms = gradient.shape[-1] / 32 + 32
    products = (p * g).abs().sum(-1, keepdim=True)
    allowed = UNIT * (terms * products + 8.0 * (g.abs() + products))
    if dtype_name(gradient.dtype) == "bfloat16":
        if variant.kind == "library":
            allowed = allowed + 2.0**-8 * (g.abs() + 8.0 * products)
        elif variant.kind == "torch":
            allowed = allowed + 2.0**-8 * (g.abs() + products)
    return (abs(scale) * p * allowed + _rounding(gradient, references[0]),)


def softmax_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, float]:
    """Return a normal gradient, the probabilities of random scores, 0 where a query sees no key, and the scale."""
    scores, scale = softmax.make_inputs(shape, "float32", seed, device)
    probabilities = softmax.causal_chain(scores, scale).nan_to_num(0.0)
    gradient = random_normal(seed + 1000, device)(*shape)
    if dtype_name(dtype) == "bfloat16":
        return gradient.bfloat16(), probabilities.bfloat16(), scale
    return gradient, probabilities, scale


def softmax_hostile(gradient: Any, probabilities: Any, scale: float) -> tuple[Any, Any, float]:
    """Return gradients with rows, if there are enough, of large, equal and small values, a NaN, and an infinity.

    NaN and infinity stand where the query sees a key: what it does not see is not read.
    """
    gradient = gradient.clone()
    rows = gradient.view(-1, gradient.shape[-1])
    count = len(rows)
    rows[0] *= 1e15
    rows[1 % count] = 3.0
    rows[2 % count] *= 1e-20
    rows[-2 % count, 0] = math.inf
    rows[-1, 0] = math.nan
    return gradient, probabilities, scale


def softmax_backward_chain(gradient: Any, probabilities: Any, scale: float) -> Any:
    """Return the gradient by PyTorch's operations, in float32 or more."""
    import torch

    wide = torch.promote_types(probabilities.dtype, torch.float32)
    g, p = gradient.to(wide), probabilities.to(wide)
    return ((g - (g * p).sum(-1, keepdim=True)) * p * scale).to(probabilities.dtype)


def torch_softmax_backward(gradient: Any, probabilities: Any, scale: float) -> Any:
    """PyTorch's backward kernel of softmax, then the scale."""
    import torch

    return torch.ops.aten._softmax_backward_data(gradient, probabilities, -1, probabilities.dtype) * scale


def liger_softmax_backward(gradient: Any, probabilities: Any, scale: float) -> Any:
    """Liger's backward kernel of softmax in Triton, then the scale."""
    from liger_kernel.ops.softmax import _softmax_backward
    from liger_kernel.ops.utils import calculate_settings

    block, warps = calculate_settings(probabilities.shape[-1])
    return _softmax_backward(gradient, probabilities, block, warps, False) * scale


def quack_softmax_backward(gradient: Any, probabilities: Any, scale: float) -> Any:
    """QuACK's backward kernel of softmax in the CuTe DSL, then the scale."""
    from quack.softmax import softmax_bwd

    columns = probabilities.shape[-1]
    found = softmax_bwd(gradient.view(-1, columns), probabilities.view(-1, columns))
    return found.mul_(scale).view(probabilities.shape)


SOFTMAX_VARIANTS = (
    torch_variant(
        "two launches, the second for the scale: 5 element passes", torch_softmax_backward, softmax_unfused_bytes
    ),
    compile_variant("one dense kernel, 3 element passes", softmax_backward_chain, softmax_dense_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "Liger's kernel in Triton, then PyTorch's scale: 5 element passes",
        liger_softmax_backward,
        softmax_unfused_bytes,
        finite_only=True,
    ),
    quack_variant(
        "QuACK's kernel in the CuTe DSL, then PyTorch's scale: 5 element passes",
        quack_softmax_backward,
        softmax_unfused_bytes,
        cannot=in_packets,
    ),
    _cuda(
        "v03_passes",
        "softmax",
        "a block per row, element by element; the second pass hits L1",
        softmax_sectors,
        hypotheses=(Hypothesis(TIME, "v04_causal", low=1.2),),
        tunables={"BACKWARD_V03_THREADS": (128, 64, 256)},
    ),
    triton_variant(
        "backward",
        "v07_triton",
        "softmax_backward",
        "masked loads skip what is above the diagonal",
        softmax_sectors,
        symbols=("backward_v07_softmax",),
        hypotheses=(Hypothesis(TIME, "v04_causal", low=1.0),),
    ),
    _cuda(
        "v04_causal",
        "softmax",
        "both rows in registers, 16-byte packets, none above the diagonal",
        softmax_sectors,
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE), _ahead("compile", 1.2)),
        tunables={"BACKWARD_V04_AHEAD_MB": (6, 0, 3, 12)},
    ),
)

SOFTMAX_BACKWARD = register(
    Op(
        name="softmax_backward",
        folder="backward",
        summary="gradient of softmax with respect to its scores, causal, with the scale",
        axes=("B", "nh", "Tq", "Tk"),
        tensors=(
            Tensor("gradient", ("B", "nh", "Tq", "Tk"), "in"),
            Tensor("probabilities", ("B", "nh", "Tq", "Tk"), "in"),
            Tensor("of_scores", ("B", "nh", "Tq", "Tk"), "out"),
        ),
        shapes={
            name: softmax.SHAPES[name]
            for name in ("b1_t1024", "b1_t2048", "b1_t4096", "b8_t512", "b8_t1024", "b8_t2048")
        },
        bench_shape=softmax.SHAPES["b8_t2048"],
        # one element, unaligned rows, queries that see no key, one query, every mapping, rows too long for registers
        check_shapes=(
            (1, 1, 1, 1),
            (1, 2, 3, 2),
            (2, 3, 17, 17),
            (1, 2, 5, 131),
            (2, 2, 255, 512),
            (1, 3, 64, 64),
            (2, 2, 1, 1024),
            (1, 1, 700, 1024),
            (1, 1, 300, 2048),
            (1, 1, 100, 4096),
            (1, 1, 9, 8192),
            (1, 1, 2, 9001),
        ),
        make_inputs=softmax_make_inputs,
        hostile=softmax_hostile,
        reference=softmax_reference,
        allowed_error=softmax_allowed_error,
        tolerance_why=SOFTMAX_WHY,
        minimum_bytes=softmax_bytes,
        unfused_bytes=softmax_unfused_bytes,
        flops=lambda shape: softmax.flops(shape),
        flops_why="a visible element costs 5: multiply, add to the sum, subtract, multiply by probability and scale",
        variants={variant.name: variant for variant in SOFTMAX_VARIANTS},
        chain=("_softmax_backward_data", "mul"),
        best="v04_causal",
    )
)


# --- layernorm -----------------------------------------------------------------------------------------------
def layernorm_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of x, gradient and weight read once, the three gradients written once."""
    return (3 * math.prod(shape) + 3 * shape[1]) * item_bytes(dtype)


def layernorm_unfused_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes if the sums over rows read both operands again, and mean and scale of each row."""
    return layernorm_bytes(shape, dtype) + 2 * math.prod(shape) * item_bytes(dtype) + 16 * shape[0]


def _statistics(x: Any, eps: float) -> tuple[Any, Any]:
    """Return the normalised rows of x in float64 and their scales."""
    centred = x.double() - x.double().mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return centred * scale, scale


def layernorm_reference(gradient: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any, Any]:
    """Compute the three gradients in float64."""
    z, scale = _statistics(x, eps)
    g = gradient.double()
    wanted = g * weight.double()
    mean, product = wanted.mean(-1, keepdim=True), (wanted * z).mean(-1, keepdim=True)
    return scale * (wanted - mean - z * product), (g * z).sum(0), g.sum(0)


LAYERNORM_WHY = (
    "With u = 2^-24 and n = C / 32 + 8 as 32 threads or more share a row, a normalised z is off by d = (1 + |z|) m + "
    "16 u |z|, m = 2 (n + 5) u max |x| s, as in layernorm. So the gradient of x is off by s (((n + 16) u + m) (|h| + "
    "mean |h| + |z| mean |h z|) + d mean |h z| + |z| mean(|h| d)). The gradient of the weight is off by sum |g| d + "
    "(N / 16 + n + 64) u sum |g z|, that of the bias by the second term without z. bf16 adds half an ulp, 2^-8"
)


def layernorm_allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of the three gradients, see LAYERNORM_WHY."""
    gradient, x, weight, eps = inputs
    rows, columns = x.shape
    terms = columns / 32 + 8
    z, scale = _statistics(x, eps)
    z, g = z.abs(), gradient.double().abs()
    wanted = g * weight.double().abs()
    shifted = 2.0 * (terms + 5.0) * UNIT * x.double().abs().amax(-1, keepdim=True) * scale
    off = shifted * (1.0 + z) * (1.0 + shifted) + 16.0 * UNIT * z
    product, mean = (wanted * z).mean(-1, keepdim=True), wanted.mean(-1, keepdim=True)
    size = wanted + mean + z * product
    of_x = scale * (
        ((terms + 16) * UNIT + shifted) * size + off * product + (z + off) * (wanted * off).mean(-1, keepdim=True)
    )
    long_sum = (rows / 16 + terms + 64) * UNIT
    of_weight = (g * off).sum(0) + long_sum * (g * (z + off)).sum(0)
    allowed = (of_x, of_weight, long_sum * g.sum(0))
    return tuple(a + _rounding(x, reference) for a, reference in zip(allowed, references, strict=True))


def layernorm_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, float]:
    """Return a normal gradient and x, weights around 1, eps."""
    import torch

    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    x, weight = normal(*shape).to(kind), (1.0 + 0.1 * normal(shape[1])).to(kind)
    return random_normal(seed + 1000, device)(*shape).to(kind), x, weight, EPS


def layernorm_hostile(gradient: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any, Any, float]:
    """Return inputs with awkward rows and a weight of 0."""
    weight = weight.clone()
    weight[-1] = 0.0
    return gradient, awkward_rows(x), weight, eps


def layernorm_backward_chain(gradient: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any, Any]:
    """Return the three gradients by PyTorch's operations, in float32 or more."""
    import torch

    wide = torch.promote_types(x.dtype, torch.float32)
    value, g = x.to(wide), gradient.to(wide)
    centred = value - value.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    z, wanted = centred * scale, g * weight.to(wide)
    of_x = scale * (wanted - wanted.mean(-1, keepdim=True) - z * (wanted * z).mean(-1, keepdim=True))
    over = list(range(x.dim() - 1))
    return of_x.to(x.dtype), (g * z).sum(over).to(weight.dtype), g.sum(over).to(weight.dtype)


def _prepared_torch_layernorm(gradient: Any, x: Any, weight: Any, eps: float) -> Callable[[], Any]:
    """Return PyTorch's backward kernels as a call; mean and scale of the rows are those that the forward pass keeps."""
    import torch

    shape = list(x.shape[-1:])
    with torch.no_grad():
        _, mean, scale = torch.ops.aten.native_layer_norm(x, shape, weight, None, eps)
    backward = torch.ops.aten.native_layer_norm_backward
    return functools.partial(backward, gradient, x, shape, mean, scale, weight, weight.detach(), [True] * 3)


def _prepared_liger_layernorm(gradient: Any, x: Any, weight: Any, eps: float) -> Callable[[], Any]:
    from liger_kernel.ops.layer_norm import layer_norm_backward, layer_norm_forward

    _, rows, mean, scale, *_ = layer_norm_forward(x, weight, weight, eps)
    return functools.partial(layer_norm_backward, gradient, rows, weight, weight, mean, scale)


def _prepared_quack_layernorm(gradient: Any, x: Any, weight: Any, eps: float) -> Callable[[], Any]:
    from quack.rmsnorm import layernorm_bwd, layernorm_fwd

    _, scale, mean = layernorm_fwd(x, weight.float(), eps=eps, return_rstd=True, return_mean=True)
    return functools.partial(layernorm_bwd, x, weight, gradient, scale, mean)


LAYERNORM_VARIANTS = (
    torch_variant(
        "PyTorch's backward kernels; that of weight and bias reads both operands again",
        prepared_first(_prepared_torch_layernorm),
        layernorm_unfused_bytes,
        prepared=_prepared_torch_layernorm,
        finite_only=True,
    ),
    compile_variant("the sums over rows read both operands again", layernorm_backward_chain, layernorm_unfused_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "Liger's kernel in Triton, one program per SM, then PyTorch's sums: 3 element passes",
        prepared_first(_prepared_liger_layernorm),
        lambda shape, dtype: layernorm_bytes(shape, dtype) + 8 * shape[0],
        prepared=_prepared_liger_layernorm,
        finite_only=True,
        cannot=in_one_block,
    ),
    quack_variant(
        "QuACK's persistent kernel in the CuTe DSL, then PyTorch's sums: 3 element passes",
        prepared_first(_prepared_quack_layernorm),
        lambda shape, dtype: layernorm_bytes(shape, dtype) + 8 * shape[0],
        prepared=_prepared_quack_layernorm,
    ),
    _cuda(
        "v05_columns",
        "layernorm",
        "a block per row, then a thread per column: 5 element passes",
        layernorm_unfused_bytes,
        symbols=("backward_v05_rows", "backward_v05_columns"),
        hypotheses=(Hypothesis(TIME, "v06_ring", low=2.0),),
        tunables={"BACKWARD_V05_THREADS": (256, 128, 512)},
    ),
    triton_variant(
        "backward",
        "v07_triton",
        "layernorm_backward",
        "two programs per SM keep their sums for weight and bias: 3 element passes",
        layernorm_bytes,
        symbols=("backward_v07_layernorm",),
        hypotheses=(Hypothesis(TIME, "v06_ring", low=1.03),),
        cannot=in_one_block,
    ),
    _cuda(
        "v06_ring",
        "layernorm",
        "blocks that stay, rows ahead in shared memory, one exchange a row: 3 element passes",
        layernorm_bytes,
        symbols=("backward_v06_ring", "backward_v06_sum"),
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE), _ahead("compile", 1.2)),
        tunables={"BACKWARD_V06_STAGES": (3, 2, 4)},
    ),
)

LAYERNORM_BACKWARD = register(
    Op(
        name="layernorm_backward",
        folder="backward",
        summary="gradients of layernorm with respect to rows, weight and bias",
        axes=("N", "C"),
        tensors=(
            Tensor("gradient", ("N", "C"), "in"),
            Tensor("x", ("N", "C"), "in"),
            Tensor("weight", ("C",), "in"),
            Tensor("of_x", ("N", "C"), "out"),
            Tensor("of_weight", ("C",), "out"),
            Tensor("of_bias", ("C",), "out"),
        ),
        shapes={
            "b1_t1024": (1024, 768),
            "b8_t1024": (8192, 768),
            "b8_t4096": (32768, 768),
            "large": (262144, 768),
            "n4096_c4096": (4096, 4096),
            "n16384_c1024": (16384, 1024),
            "n16384_c8192": (16384, 8192),
        },
        bench_shape=(262144, 768),
        # one element, unaligned rows, every mapping of rows to threads, rows too long for the ring
        check_shapes=(
            (1, 1),
            (7, 131),
            (300, 256),
            (301, 768),
            (4101, 768),
            (1500, 1024),
            (300, 512),
            (300, 1536),
            (300, 2048),
            (3, 4096),
            (300, 8192),
            (5, 8200),
            (3, 16400),
        ),
        make_inputs=layernorm_make_inputs,
        hostile=layernorm_hostile,
        reference=layernorm_reference,
        allowed_error=layernorm_allowed_error,
        tolerance_why=LAYERNORM_WHY,
        minimum_bytes=layernorm_bytes,
        unfused_bytes=layernorm_unfused_bytes,
        flops=lambda shape: 15 * math.prod(shape),
        flops_why="an element costs 15: five sums, centre, square, weight, product, scale, and five for the gradients",
        variants={variant.name: variant for variant in LAYERNORM_VARIANTS},
        chain=("native_layer_norm_backward",),
        best="v06_ring",
    )
)


# --- GELU ----------------------------------------------------------------------------------------------------
def gelu_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of both operands read once, the gradient written once."""
    return 3 * math.prod(shape) * item_bytes(dtype)


def _slope(x: Any) -> tuple[Any, Any, Any, Any]:
    """Return the terms of the derivative in float64: q, 1 - q, t and t'."""
    y = x.double()
    t, of_t = 2.0 * SQRT_2_PI * (y + CUBIC * y**3), 2.0 * SQRT_2_PI * (1.0 + 3.0 * CUBIC * y * y)
    return t.sigmoid(), (-t).sigmoid(), t, of_t


def gelu_reference(gradient: Any, x: Any) -> Any:
    """Compute the gradient in float64."""
    q, other, _, of_t = _slope(x)
    return gradient.double() * (q + x.double() * q * (other * of_t))


GELU_WHY = (
    "With u = 2^-24, q is relatively off by r = (8 |t| (1 - q) + 16) u, so 1 - q by q r + u, and t' by 4 u. The "
    "derivative is off by q r + |x| t' q (r + 9 u). The form 0.5 (1 + tanh) of PyTorch and v01 cancels digits: "
    "6 u (1 + |x| t') more. Results below 2^-125 (1 + |x| t') may be 0. bf16 adds half an ulp of the output, 2^-8"
)


def gelu_allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of the gradient, see GELU_WHY."""
    gradient, x = inputs
    q, other, t, of_t = _slope(x)
    g, steep = gradient.double().abs(), (x.double().abs() * of_t).clamp(max=1e30)
    relative = (8.0 * (t.abs() * other).nan_to_num(0.0) + 16.0) * UNIT
    allowed = q * relative + steep * q * (relative + 9.0 * UNIT)
    if variant.kind not in ("cuda", "triton") or variant.name.startswith("v01"):
        allowed = allowed + 6.0 * UNIT * (1.0 + steep) * (x.double().abs() < 12.0)
    allowed = g * (allowed + 2.0**-125 * (1.0 + steep)) + 2.0 * UNIT * references[0].abs()
    return (allowed + _rounding(x, references[0]),)


def gelu_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any]:
    """Return a normal gradient, and normal x of standard deviation 2: both tails of the function occur."""
    import torch

    kind = getattr(torch, dtype_name(dtype))
    gradient = random_normal(seed + 1000, device)(*shape).to(kind)
    return gradient, random_normal(seed, device)(*shape).mul_(2.0).to(kind)


EXTREMES = (math.nan, math.inf, -math.inf, 1e10, -1e10, 0.0, -0.0, 1e-30, -1e-30, -5.0, -8.0, -12.0, 30.0, -30.0)


def gelu_hostile(gradient: Any, x: Any) -> tuple[Any, Any]:
    """Return inputs that start with the values of EXTREMES, as many as there are elements."""
    import torch

    x = x.clone()
    flat = x.view(-1)
    count = min(len(flat), len(EXTREMES))
    flat[:count] = torch.tensor(EXTREMES[:count], device=x.device).to(x.dtype)
    return gradient, x


def gelu_backward_chain(gradient: Any, x: Any) -> Any:
    """PyTorch's own backward kernel."""
    import torch

    return torch.ops.aten.gelu_backward(gradient, x, approximate="tanh")


GELU_VARIANTS = (
    torch_variant("one launch, 3 element passes", gelu_backward_chain, gelu_bytes),
    compile_variant("one kernel, 3 element passes", gelu_backward_chain, gelu_bytes),
    _cuda(
        "v01_element",
        "gelu",
        "one launch, 3 element passes; in bf16, instructions limit it",
        gelu_bytes,
        hypotheses=(Hypothesis(TIME, "v02_packet", low=1.3),),
        tunables={"BACKWARD_V01_THREADS": (256, 128, 512)},
    ),
    triton_variant(
        "backward",
        "v07_triton",
        "gelu_backward",
        "as wide accesses as v02",
        gelu_bytes,
        symbols=("backward_v07_gelu",),
        hypotheses=(Hypothesis(TIME, "v02_packet", high=1.1),),
    ),
    _cuda(
        "v02_packet",
        "gelu",
        "16-byte packets, two special-function instructions an element",
        gelu_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.95, least_bytes=LARGE), _ahead("compile", 1.0)),
        tunables={"BACKWARD_V02_THREADS": (128, 64, 256)},
    ),
    _cuda(
        "v08_ahead",
        "gelu",
        "v02 with prefetches into L2",
        gelu_bytes,
        hypotheses=(Hypothesis(TIME, "v02_packet", high=1.0),),
        tunables={"BACKWARD_V08_THREADS": (256, 128), "BACKWARD_V08_AHEAD_MB": (6, 3, 12)},
    ),
    _cuda(
        "v09_single",
        "gelu",
        "one packet a thread in fp32, too, in blocks of 256",
        gelu_bytes,
        hypotheses=(Hypothesis(TIME, "v02_packet", high=1.0, dtypes=("float32",), least_bytes=LARGE),),
        tunables={"BACKWARD_V09_THREADS": (256, 128, 1024)},
    ),
)

GELU_BACKWARD = register(
    replace(
        LAYERNORM_BACKWARD,
        name="gelu_backward",
        torch_op="gelu_backward",
        summary="gradient of GELU, tanh form",
        tensors=(
            Tensor("gradient", ("N", "C"), "in"),
            Tensor("x", ("N", "C"), "in"),
            Tensor("of_x", ("N", "C"), "out"),
        ),
        shapes={
            "b1_t1024": (1024, 3072),
            "b8_t1024": (8192, 3072),
            "b8_t4096": (32768, 3072),
            "large": (65536, 3072),
        },
        bench_shape=(65536, 3072),
        # one element, operands that do not fill packets, a last block that is not full
        check_shapes=((1, 1), (3, 5), (7, 131), (5, 1022), (1, 3072), (33, 768), (129, 3073), (64, 4096)),
        make_inputs=gelu_make_inputs,
        hostile=gelu_hostile,
        reference=gelu_reference,
        allowed_error=gelu_allowed_error,
        tolerance_why=GELU_WHY,
        minimum_bytes=gelu_bytes,
        unfused_bytes=gelu_bytes,
        flops=lambda shape: 15 * math.prod(shape),
        flops_why="an element costs 15: 6 for t, exp, 1 +, divide, 3 for t', 1 - q, and two products more than sums",
        variants={variant.name: variant for variant in GELU_VARIANTS},
        chain=("gelu_backward",),
        best="v09_single",
    )
)

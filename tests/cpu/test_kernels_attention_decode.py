"""attention_decode: byte and FLOP models, reference, tolerance, hostile heads, strides, splits."""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.attention_decode.custom_op import attention_decode
from kernels.attention_decode.op import split_bytes, splits
from kernels.registry import ops
from studies.bench import measure as bench

pytestmark = pytest.mark.studies

OP = ops()["attention_decode"]
SHAPES = [(1, 1, 1, 64), (2, 3, 31, 64), (3, 1, 40, 64)]


# --- models --------------------------------------------------------------------------------------------------
class Traffic(TorchDispatchMode):
    """Bytes of the operands and results of every operation that is no view."""

    VIEWS = ("transpose", "expand", "view", "_unsafe_view")

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ not in self.VIEWS:
            self.bytes += sum(value.nbytes for value in (*args, result) if isinstance(value, torch.Tensor))
        return result


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", OP.dtypes)
def test_bytes_are_those_that_the_operations_touch(shape, dtype):
    inputs = OP.make_inputs(shape, dtype)
    with Traffic() as chain:
        out = OP.variants["torch"].fn(*inputs)
    assert OP.unfused_bytes(shape, dtype) == chain.bytes
    assert OP.minimum_bytes(shape, dtype) == sum(value.nbytes for value in (*inputs[:3], out))
    scores = math.prod(shape[:3]) * out.itemsize
    assert OP.fused_bytes(shape, dtype, "compile") == chain.bytes - 2 * scores


def test_flops_by_counting():
    batch, heads, keys, size = shape = (2, 3, 5, 4)
    count = 0
    for _ in range(batch * heads):
        for _ in range(keys):
            count += 2 * size + 4 + 2 * size  # score, softmax, value
        count += size
    assert OP.flops(shape) == count


def test_a_split_is_written_and_read():
    shape = (8, 12, 8192, 64)
    parts = splits(shape)
    assert parts > 1
    assert split_bytes(shape, "bf16") == OP.minimum_bytes(shape, "bf16") + 2 * 96 * parts * (64 + 2) * 4
    assert splits((1, 1, 1, 64)) == 1


# --- reference and tolerance ---------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", OP.check_shapes[:6])
def test_reference_is_scaled_dot_product_attention(shape):
    q, k, v, scale = OP.make_inputs(shape, "float32")
    with sdpa_kernel(SDPBackend.MATH):
        expected = scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=scale)
    torch.testing.assert_close(OP.reference(q, k, v, scale), expected, rtol=1e-12, atol=1e-14)


def test_reference_by_hand():
    q, k, v, scale = OP.make_inputs((1, 1, 3, 64), "float32")
    scores = [scale * sum(float(a) * float(b) for a, b in zip(q[0, 0, 0], key, strict=True)) for key in k[0, 0]]
    powers = [math.exp(score) for score in scores]
    for column in range(64):
        expected = sum(p * float(v[0, 0, j, column]) for j, p in enumerate(powers)) / sum(powers)
        assert float(OP.reference(q, k, v, scale)[0, 0, 0, column]) == pytest.approx(expected, rel=1e-12)


def missing_key(q, k, v, scale, at):
    keep = [j for j in range(k.shape[2]) if j != at]
    return OP.reference(q, k[:, :, keep], v[:, :, keep], scale)


@pytest.mark.parametrize(("dtype", "keys"), [("float32", 1000), ("float32", 33), ("bfloat16", 33)])
def test_a_missing_key_is_beyond_the_tolerance(dtype, keys):
    """Left out of all heads, an ordinary key: the last, as a wrong end of a loop leaves it out."""
    inputs = OP.make_inputs((2, 3, keys, 64), dtype)
    check = bench.compare(OP, "v04_cluster", inputs, "missing", lambda *x: missing_key(*x, keys - 1).to(x[0].dtype))
    assert check.note == "error above the tolerance"


def test_the_tolerance_knows_who_rounds():
    def allowed(variant, dtype):
        inputs = OP.make_inputs((1, 2, 33, 64), dtype)
        return float(OP.allowed_error(inputs, (OP.reference(*inputs),), OP.variants[variant])[0].mean())

    assert allowed("v03_split", "float32") < allowed("sdpa_efficient", "float32") < allowed("v03_split", "bfloat16")
    assert allowed("v03_split", "bfloat16") < allowed("sdpa_flash", "bfloat16") < 0.2


# --- hostile inputs ------------------------------------------------------------------------------------------
def test_hostile_heads_are_what_they_are_for():
    q, k, v, scale = OP.hostile(*OP.make_inputs((2, 4, 33, 64), "float32"))
    out = OP.reference(q, k, v, scale).view(8, 64)
    assert out.isnan().all(-1).tolist() == [False, True, True, False, True, False, False, False]
    scores = ((q.double() @ k.double().mT) * scale).view(8, 33)
    assert bool((scores[2] == math.inf).any())
    assert int((scores[3] == -math.inf).sum()) == 17
    assert bool((scores[4] == -math.inf).all())
    assert out[5].isinf().nonzero().tolist() == [[7]]
    assert float(scores[6].abs().max()) > 1e4
    assert float(out[7].abs().max()) > 1e28
    assert not torch.equal(k, OP.make_inputs((2, 4, 33, 64), "float32")[1])


@pytest.mark.parametrize("dtype", OP.dtypes)
def test_every_variant_of_ours_takes_hostile_heads_on_the_cpu(dtype):
    inputs = OP.hostile(*OP.make_inputs((2, 4, 33, 64), dtype))
    for variant in ("torch", "v01_row", "v04_cluster"):
        assert bench.compare(OP, variant, inputs, "hostile", OP.call(variant), "torch").passed


# --- the custom op -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((1, 2, 2, 64), (1, 2, 5, 64), (1, 2, 5, 64)),
        ((1, 2, 1, 64), (1, 2, 0, 64), (1, 2, 0, 64)),
        ((1, 2, 1, 32), (1, 2, 5, 32), (1, 2, 5, 32)),
        ((1, 2, 1, 64), (1, 2, 5, 64), (1, 2, 6, 64)),
        ((1, 3, 1, 64), (1, 2, 5, 64), (1, 2, 5, 64)),
        ((1, 2, 64), (1, 2, 5, 64), (1, 2, 5, 64)),
    ],
)
def test_wrong_shapes_are_one_sentence(q, k, v):
    with pytest.raises(ValueError, match=r"takes q of shape \(B, nh, 1, 64\), k and v \(B, nh, Tk, 64\), Tk >= 1, got"):
        attention_decode(torch.zeros(q), torch.zeros(k), torch.zeros(v), 0.125)

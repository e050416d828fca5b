"""Kernels whose blocks wait for each other, and kernels that let the next one start early."""

import subprocess
import sys

import pytest
import torch

from kernels.registry import ops
from studies.bench import measure as bench
from tests import chains

pytestmark = [pytest.mark.gpu, pytest.mark.studies]
WAITING = ("v13_split_k", "v15_padded")
LAUNCHES = 400
# In a process of its own: two kernels that hold half of the GPU each would wait for ever.
PROGRAM = """
import sys
import torch
from kernels.registry import ops

op, launches = ops()["matmul"], int(sys.argv[2])
run = op.variants[sys.argv[1]].fn
least, most = torch.cuda.Stream.priority_range()
streams = [torch.cuda.Stream(priority=priority) for priority in (least, most, least, most)]
shapes = [op.shapes["mlp_proj"], op.shapes["qkv"], op.shapes["square_1793"], op.shapes["proj"]]
inputs = [op.make_inputs(shape, "float32", seed=3, device="cuda") for shape in shapes]
expected = [run(*one) for one in inputs]
torch.cuda.synchronize()
for _ in range(launches // 40):
    found = []
    for _ in range(10):
        for stream, one, right in zip(streams, inputs, expected):
            with torch.cuda.stream(stream):
                found.append((run(*one), right))
    torch.cuda.synchronize()
    assert all(torch.equal(*pair) for pair in found)
print("all equal")
"""


@pytest.mark.parametrize("variant", WAITING)
def test_several_on_streams_of_different_priority_end_and_agree(variant):
    command = [sys.executable, "-c", PROGRAM, variant, str(LAUNCHES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "all equal", done.stderr[-2000:]


@pytest.mark.parametrize("variant", ["v12_ring", *WAITING])
def test_what_starts_early_behind_a_ring_reads_what_it_wrote(variant):
    """The ring's compiler fence also lets the next kernel start: one that is launched so waits for the ring's end."""
    matmul, gelu = ops()["matmul"], ops()["gelu"]
    fused = gelu.variants[gelu.best].fn
    inputs = matmul.make_inputs(chains.shape_of(matmul), "float32", seed=3, device="cuda")
    run = matmul.variants[variant].fn

    def both(after):
        return [bench.outputs(fused(_then(run(*inputs), after)))[0] for _ in range(20)]

    expected = both(torch.cuda.synchronize)
    for found, right in zip(both(lambda: None), expected, strict=True):
        assert torch.equal(found, right)


def _then(value, after):
    after()
    return value

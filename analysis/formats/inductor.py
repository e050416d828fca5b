"""What automatic ranges record of torch.compile: the calls of kernels that Inductor wrote, and their modules."""

from __future__ import annotations

from msgspec import Struct

from analysis.formats.files import CsvFile, Whole


class KernelCall(Struct):
    """A call of a kernel in a graph that torch.compile made, in the order of the graph.

    `kernel` is a fused kernel (`triton_poi_fused_add_0`) or a library's (`extern_kernels.mm`). `modules` are paths
    below the compiled module, with `;` between, a blank one for operations that name none; `operations` are PyTorch's.
    """

    graph: Whole
    backward: Whole
    call: Whole
    kernel: str
    modules: str
    operations: str


INDUCTOR = CsvFile("inductor", "inductor.csv", KernelCall, again="write it again with `make profile`")

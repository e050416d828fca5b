"""Declare inductor.csv: the kernel calls of graphs that torch.compile made. Automatic ranges record them."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats import place
from analysis.formats.files import CsvFile, Whole


class KernelCall(Struct):
    """One kernel call in a graph that torch.compile made; `call` numbers the calls in the order of the graph.

    `kernel` is a fused kernel (`triton_poi_fused_add_0`) or that of a library (`extern_kernels.mm`). `modules` are
    paths below the compiled module, separated by `;`. A blank path stands for operations without a module.
    `operations` are those of PyTorch. `reads` are the calls whose results it reads, separated by `;`; files from before
    November 2026 lack them.
    """

    graph: Whole
    backward: Whole
    call: Whole
    kernel: str
    modules: str
    operations: str
    reads: str | UnsetType = UNSET


INDUCTOR = CsvFile("inductor", "inductor.csv", KernelCall, again=place.again("make profile"))

"""Declare graph_kernels.csv, which `analysis.nsys_extras` writes."""

from msgspec import Struct

from analysis.formats.files import CsvFile, Moment, Whole
from analysis.formats.place import EXPORT


class GraphKernel(Struct):
    """An operation that a CUDA graph launched, and the call that recorded its node.

    `start_ns` and `correlation_id` identify the operation. The call ran from `recorded_ns` to `returned_ns` on thread
    `tid` of process `pid`. Units: ns on the clock of the timeline; a call before the capture began has negative times.
    """

    start_ns: Whole
    correlation_id: Whole
    pid: Whole
    tid: Whole
    recorded_ns: Moment
    returned_ns: Moment


GRAPH_KERNELS = CsvFile("graph_kernels", "graph_kernels.csv", GraphKernel, again=f"export it again with {EXPORT}")

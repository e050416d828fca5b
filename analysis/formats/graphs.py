"""What `python -m analysis.graph_kernels` writes: where each kernel of a CUDA graph was recorded."""

from __future__ import annotations

from msgspec import Struct

from analysis.formats.files import CsvFile, Whole


class GraphKernel(Struct):
    """An operation that a CUDA graph launched, by its start and its launch, and the call that recorded its node.

    Times are ns on the clock of the timeline. The call that recorded the node lies on thread `tid` of process `pid`.
    """

    start_ns: Whole
    correlation_id: Whole
    pid: Whole
    tid: Whole
    recorded_ns: Whole
    returned_ns: Whole


GRAPH_KERNELS = CsvFile(
    "graph_kernels", "graph_kernels.csv", GraphKernel, again="export it again with nsys_scripts/export_csv.sh"
)

"""Declare the file of studies/lectures: the measurement of each prediction, and profiles of operators."""

from msgspec import Struct

from analysis.formats import place
from analysis.formats.files import Amount, JsonFile, Whole


class Point(Struct):
    """One measured quantity: the median, and quantiles if there were samples. `seen`: kernels, grids, tiles."""

    study: str
    case: str
    quantity: str
    unit: str
    value: Amount
    p5: Amount | None = None
    p95: Amount | None = None
    seen: str = ""


class ProfiledOperator(Struct):
    """A row of torch.profiler's table."""

    name: str
    self_cpu_ns: Amount
    cpu_ns: Amount
    self_cuda_ns: Amount
    cuda_ns: Amount
    calls: Whole


class ProfiledKernel(Struct):
    """A launched kernel and the operator that launched it."""

    name: str
    grid: list[int]
    block: list[int]
    calls: Whole
    total_ns: Amount
    operator: str


class ProfiledCase(Struct):
    """One call under torch.profiler; `stacks`: Python stack `outer;inner` -> ns."""

    case: str
    operators: list[ProfiledOperator]
    kernels: list[ProfiledKernel]
    stacks: dict[str, float] = {}


class Lectures(Struct):
    """lectures.json."""

    gpu: str
    seconds: dict[str, float]
    points: list[Point]
    profiles: list[ProfiledCase]


LECTURES = JsonFile(
    "lectures",
    "lectures.json",
    Lectures,
    place.again("make studies"),
    alone=True,
    studies=("studies.lectures",),
)

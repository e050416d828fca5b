"""Remedies for several kinds of missing data."""

from analysis.formats import place
from analysis.formats.report import Reason

ROOFS = place.here(
    "measure them with `make selftest` on that GPU, which keeps them for every `make profile` there",
    "measure them once on that GPU, in a clone of the repository, which keeps them for every profile there",
)
BARE_TIMES = f"run the program with `{place.program('nsys_scripts/bare.sh --out RUN', 'profile')} -- COMMAND`"
METRICS = f"capture with the metrics that `{place.METRICS}` prints"
# Why there are no counters at all, no time in the running program, and no range; the most specific reason first.
NO_COUNTERS = (Reason.NO_COUNTERS, Reason.NCU_FAILED, Reason.UNCOUNTED, Reason.NO_GPU)
NO_TIMES = (Reason.NSYS_FAILED, Reason.NO_TIMELINE, Reason.NO_GPU_TIME)
NO_RANGES = (Reason.NO_LAUNCHES, Reason.NO_RANGES, Reason.NO_TIMELINE, Reason.NSYS_FAILED)
# Table -> why its cells are blank.
NO_CELLS = {"traffic": (Reason.NO_PREDICTIONS,), "roofline": (Reason.UNKNOWN_GPU, Reason.NO_ROOFS)}

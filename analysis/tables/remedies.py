"""Remedies that several gaps name."""

from __future__ import annotations

ROOFS = "measure them with `make selftest` on that GPU, which keeps them for every `make profile` there"
BARE_TIMES = "run the program with `nsys_scripts/bare.sh --out RUN -- COMMAND`"
METRICS = "capture with the metrics that `python -m analysis.metrics` prints"
# Beginnings of the names of gaps that explain why there are no counters at all.
COUNTER_GAPS = ("roofline, stalls and measured bytes", "what ncu measures", "the counters of", "times and counters")
# And of those that explain why there is no time in the running program, and no range.
TIMELINE_GAPS = ("what nsys measures", "time per layer and step", "time on the GPU")
RANGE_GAPS = ("which range launched which kernel", "time per layer", "what nsys measures")
# Table -> beginnings of the gaps that name the file its cells lack.
FILE_GAPS = {"traffic": ("predicted bytes",), "roofline": ("datasheet roofs", "measured roofs")}

"""Ways out that several gaps name."""

from __future__ import annotations

BARE_RUN = "run `python -m harness.run --mode bare --out RUN/captures` on that GPU"
BARE_TIMES = "run the program with `nsys_scripts/bare.sh --out RUN -- COMMAND`"
METRICS = "capture with the metrics that `python -m analysis.metrics` prints"

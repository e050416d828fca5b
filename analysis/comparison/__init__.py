"""Compare two sides, A and B: captures, runs or tables. `compare.compare` is the entry."""

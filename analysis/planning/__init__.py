"""Choose which launches Nsight Compute replays, from the timeline that Nsight Systems recorded."""

BUDGET_S = 40  # seconds that ncu gets by default

"""Choose which launches Nsight Compute replays, from the timeline that Nsight Systems recorded."""

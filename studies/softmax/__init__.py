"""The study of the fused softmax: its passes over memory, its benchmarks, and a build for Turing."""

"""The benchmark of the kernels: each variant of an op is checked against float64, then timed beside the others."""

"""Studies, each of which adds tables to the report on its own files. They stand before all others, in this order."""

import sys

if sys.argv[:1] == ["-m"]:  # Python is about to run `python -m studies.…`
    from analysis.formats.console import name_lacking_packages

    name_lacking_packages()

TABLES = (
    "decode", "decode_bounds", "decode_checks", "decode_prefill", "decode_phases", "layer_profile", "layer_compounds",
    "layer_tokens", "layer_curve", "layer_instrument", "layer_agreement", "component_kernels", "component_launches",
    "baseline", "baseline_operators", "published", "accounting", "accounting_use", "lecture_profiles",
    "lecture_matmul", "lecture_mlp", "lecture_tricks", "lecture_waves",
    "lecture_latencies", "lecture_units", "lecture_roofs", "multi_gpu", "multi_gpu_claims", "multi_gpu_splits",
    "multi_gpu_checks",
    "sweep_best", "sweep_shapes", "sweep",
)  # fmt: skip

"""The tables of the layer profiler, the baseline and the sweep, as far as a run has such profiles."""

from __future__ import annotations

import pandas as pd

from analysis.capture.model import Capture
from studies.baseline import tables as baseline
from studies.layers import tables as layer_profile
from studies.sweep import tables as sweep


def build(capture: Capture, measured: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables that have rows, by name. `measured` from kernels.measured_launches."""
    profiles = (capture.layer_profile or {}).get("profiles") or []
    settings = (capture.baseline or {}).get("settings") or []
    agreement = layer_profile.build_agreement(capture)
    tables = {
        "layer_profile": layer_profile.build_profile(profiles, agreement),
        "layer_tokens": layer_profile.build_tokens(profiles),
        "layer_instrument": layer_profile.build_instrument(profiles),
        "layer_agreement": agreement,
        "component_kernels": layer_profile.build_component_kernels(capture),
        "component_launches": layer_profile.build_component_launches(capture),
        "baseline": baseline.build_baseline(settings),
        "baseline_operators": baseline.build_operators(settings),
    }
    tables["bottlenecks"] = baseline.build_bottlenecks(tables["baseline"], tables["baseline_operators"])
    tables |= sweep.build_sweep(capture, measured)
    tables["sweep_best"] = sweep.build_best(tables["sweep"])
    tables["published"] = baseline.build_published(tables)
    return {name: table for name, table in tables.items() if len(table)}

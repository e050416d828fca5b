"""The order of a report's tables, notes and missing data. What no list names comes last, in the order of the files."""

TABLES = (
    "steady_steps", "changes",
    "steps", "token_parts", "devices", "gaps", "ranks", "collectives", "collective_calls", "overlap", "stragglers",
    "rank_waits", "rank_steps", "rank_costs",
    "spans", "layers_folded", "cpu_times", "layers", "bare_times", "compiled", "graphs", "kernels",
    "sampled_steps", "sampled_layers", "sampled_kernels", "l2_reuse", "copies", "traffic",
    "counters", "units", "links", "roofline", "roof_lines", "stalls", "rules", "source", "listing", "fusion",
    "fusion_check",
    "host", "counting", "coverage", "program", "diagnosis", "step_diagnosis", "operations", "launch_times",
    "sampled_times",
)  # fmt: skip

# A note, or what says that data is missing, by the module and the function that declare it.
NOTES = (
    "devices.several_gpus", "notes.equal_sums", "ranks.skew", "notes.whose_clock", "ranks.recorded_late",
    "collective_calls.counted", "rank_places.other_models",
    "notes.unattributed", "notes.graphs", "set_up.not_judged", "counting.said", "sampled.said",
    "plan.cut_plan",
    "links.measured_with", "notes.siblings", "periods.said", "conditions.by_capability", "compiled.said",
    "notes.rates", "notes.calls", "notes.counters", "notes.decimal_commas", "operations.merged",
)  # fmt: skip
MISSING = (
    "completeness.of_the_readers", "completeness.impossible_roofs", "join.several_runs", "notes.unequal_sums",
    "layers.unknown_launches",
    "compiled.unknown", "completeness.name_missing_captures", "completeness.name_missing_files",
    "bare.never_closed", "bare.unmatched", "counting.other_timeline", "roofline.without_points",
    "completeness.partial_counters", "counting.spread_groups", "rank_places.ranks_from_order",
    "rank_places.ranks_that_are_missing", "collectives.what_did_not_fit",
    "collective_calls.bytes_unknown",
)  # fmt: skip

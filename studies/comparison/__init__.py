"""Measure how often comparisons are wrong: equal sides, injected slow-downs, and other tools' rules beside ours."""

DATA = ("prefill", "decode", "eager")  # models: their rows begin with these names

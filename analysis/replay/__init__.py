"""Replay a step as a dependency graph: find steady steps, build the graph, change, simulate and decompose it.

steady → graph → changes → simulate → decompose → savings; every function is pure and reads a `Capture` only.
"""

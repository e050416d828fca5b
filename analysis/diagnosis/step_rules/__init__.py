"""The causes that a steady step can have: one module a cause, or a few that one look tells apart.

Each module has `propose(view)`, which yields what it would change. No module computes a saving:
`analysis.diagnosis.savers` replays each change. To add a cause, add a module here, its kind to
kinds.toml and its advice to advice.toml.
"""

"""The causes that a steady step can have: one module a cause, or a few that one look tells apart.

Each module has `propose(view)`, which yields what it would change. No module computes a saving:
`analysis.diagnosis.savers` replays each change. To add a cause, add a module here and its kind to
kinds.toml. If the cure has another name in each library, advice.toml says it.
"""

"""The answer key of diagnoses: pairs of kernels, one slow by one defect and its fixed twin, and clean kernels.

Every defect of `analysis/diagnosis/kinds.toml` has a pair in the *development* half, on which rules may be tuned, and
one of another algorithm in the *validation* half, on which they are only judged. `registry` lists what was captured.
"""

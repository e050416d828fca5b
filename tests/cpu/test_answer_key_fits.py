"""What is fitted to the answer key is what a fit gives now, and holds on sets that it left out."""

import numpy as np
import pytest

from analysis.diagnosis import built, won
from tests.checkout import loaded

pytestmark = pytest.mark.studies


def test_weights_are_those_of_the_fit_and_hold_on_sets_that_it_left_out() -> None:
    fit = loaded("tests/answer_key/kernels/fit.py")
    assert np.allclose(fit.fit(fit.known()), fit.likelihood.weights(), rtol=1e-2, atol=1e-3, equal_nan=True)
    rows = fit.left_out()
    right = rows.groupby(["tier", "kind"])["right"].agg(["sum", "size"])
    assert (right.xs("defect", level="kind")["sum"][list(fit.TIERS)] >= [727, 644, 649]).all()
    assert right.xs("clean", level="kind")["sum"][list(fit.TIERS)].tolist() == [189, 159, 160]


def test_clean_kernels_are_learnt_from_where_counters_confirm_them() -> None:
    fit = loaded("tests/answer_key/kernels/fit.py")
    clean = [one.truth["kind"].eq("clean") & fit.is_confirmed(one) for one in fit.known() if one.tier == "full"]
    assert sum(map(sum, clean)) == 176
    default, full = fit._learned("kernels_12")
    assert "tensor_active_frac" not in default.rows
    assert not full.rows["range"].str.contains("turn_wheels").any()
    assert 20 < len(default.rows) == len(default.truth) <= len(full.rows) < len(fit._key("kernels_12", "full").rows)


def test_intervals_are_those_fitted_to_the_committed_savings() -> None:
    intervals = loaded("tests/answer_key/intervals.py")
    table = intervals.rows()
    assert intervals.fit(table) == built.fitted()
    judged = intervals.left_out(intervals.tried(table))
    assert judged["of"].sum() == len(table) >= 350
    later = judged[judged["earlier"].notna()]
    assert judged["others"].sum() >= 0.88 * len(table)
    assert later["earlier"].sum() >= 0.88 * later["of"].sum()


def test_savings_of_kernels_are_those_of_the_fit_and_hold_on_sets_that_it_left_out() -> None:
    fixes = loaded("tests/answer_key/kernels/won.py")
    table = fixes.fixes()
    assert fixes.fitted(table) == won.fitted()
    rows = fixes.left_out(table)
    of_key = rows[rows["set"].str.startswith("kernels")]
    assert of_key["held"].mean() >= 0.97
    assert of_key["near the time saved"].mean() >= 0.7
    assert rows["inside"].mean() >= 0.9

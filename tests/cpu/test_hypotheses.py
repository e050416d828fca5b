"""The sentence that is made of hypotheses."""

import pytest

from kernels.hypotheses import DTYPES, TIME, Hypothesis, sentence


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Hypothesis(TIME, "v02", high=0.95), "time at most 0.95 times v02's"),
        (Hypothesis(TIME, "v02", low=1.03), "time at least 1.03 times v02's"),
        (Hypothesis(TIME, "v02", low=0.97, high=1.03), "time 0.97 to 1.03 times v02's"),
        (Hypothesis(TIME, "v02", high=1.0), "time at most v02's"),
        (Hypothesis(TIME, "floor", high=1 / 0.95), "time at most 1.053 times the floor's"),
        (Hypothesis("top_stall", equals="barrier"), "top stall barrier"),
        (Hypothesis("fma_active_frac", low=0.85), "FMA pipe busy at least 85 %"),
        (Hypothesis("dram_read_bytes", high=221459251.2), "DRAM read at most 221.5 MB"),
        (Hypothesis("local_bytes", low=4096.0), "local memory at least 4096 bytes"),
        (Hypothesis("achieved_flop_per_s", low=250e12), "throughput at least 250 TFLOP/s"),
        (Hypothesis("global_load_inst", "v01", high=0.3), "global load instructions at most 0.3 times v01's"),
    ],
)
def test_a_bound_in_words(said: Hypothesis, words: str) -> None:
    assert sentence([said], DTYPES, "large") == words


def test_one_clause_names_the_dtypes_and_shapes_of_its_bound() -> None:
    said = [
        Hypothesis(TIME, "torch", high=0.5, dtypes=("bfloat16",)),
        Hypothesis(TIME, "torch", high=0.5, dtypes=("bfloat16",), shape="small"),
        Hypothesis(TIME, "floor", high=1.1, least_bytes=100e6),
    ]
    expected = (
        "time at most 0.5 times torch's in bf16 at large and small; "
        "time at most 1.1 times the floor's at large and every other shape that moves 100 MB or more"
    )
    assert sentence(said, DTYPES, "large") == expected
    assert sentence(said[:1], ("bfloat16",), "large") == "time at most 0.5 times torch's"


def test_a_variant_that_states_nothing_is_judged_by_the_rule_for_all() -> None:
    assert sentence([], DTYPES, "large") == "DRAM bytes over predicted at most 1.1"


def test_what_nothing_would_refute_is_no_hypothesis() -> None:
    with pytest.raises(ValueError, match="nothing would refute it"):
        Hypothesis(TIME, "v02")
    with pytest.raises(ValueError, match="no words for it"):
        Hypothesis("speed", low=1.0)

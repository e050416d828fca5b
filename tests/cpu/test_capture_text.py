"""Numbers, locales and units: what a cell means, decided for a whole file and never guessed."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capture.errors import InputError
from analysis.capture.text import decode, is_missing, number_style, parse_integer, parse_number
from analysis.capture.units import base_unit


@pytest.mark.parametrize(
    ("cell", "style", "value"),
    [
        ("628032", ".", 628032.0),
        ("4,963,609,951.19", ".", 4963609951.19),
        ("6.738.204.422,70", ",", 6738204422.70),
        ("65,77", ",", 65.77),
        ("27.595.520", ",", 27595520.0),
        ("1,1651,1533", ".", 116511533.0),  # groups of four
        ("6,28,032", ".", 628032.0),  # en_IN
        ("628\u202f032", ".", 628032.0),  # fr_FR
        ("1.5e3", ".", 1500.0),
        ("-0.25", ".", -0.25),
        ("5916528 (IMAD: 1125008; DFMA: 884736)", ".", 5916528.0),
    ],
)
def test_a_number_in_every_locale(cell: str, style: str, value: float) -> None:
    assert parse_number(cell, style) == value


@pytest.mark.parametrize("cell", ["", " ", "n/a", "nan", "-nan", "no data", "None", "-", "inf", "N/A"])
def test_what_is_missing_stays_missing(cell: str) -> None:
    assert is_missing(cell)
    assert math.isnan(parse_number(cell))
    assert parse_integer(cell) is None


@pytest.mark.parametrize("cell", ["abc", "1.2.3e", "CachePreferNone", "0x3", "12 apples", "--3"])
def test_text_is_no_number(cell: str) -> None:
    with pytest.raises(ValueError, match=r"number|invalid|could not"):
        parse_number(cell)


@pytest.mark.parametrize(
    ("cells", "style"),
    [
        (["1", "22", "n/a"], "."),
        (["1,980,000"], "."),
        (["119,466,666,666.67", "34.000000"], "."),
        (["0.123"], "."),  # no group begins with a lonely 0
        (["1024.123"], "."),
        (["16,896", "12.34"], "."),
        (["27.595.520", "117.344"], ","),
        (["65,77", "117.344"], ","),
        (["6.738.204.422,70"], ","),
    ],
)
def test_the_locale_of_a_file_needs_proof(cells: list[str], style: str) -> None:
    assert number_style(cells, "f.csv") == style


def test_an_ambiguous_file_is_refused_with_both_readings() -> None:
    with pytest.raises(InputError) as caught:
        number_style(["12", "117.344"], "f.csv")
    assert "117.344" in str(caught.value)
    assert "117344" in str(caught.value)
    assert "LC_ALL=C" in str(caught.value)


def test_two_locales_in_one_file_are_refused() -> None:
    with pytest.raises(InputError, match="different locales"):
        number_style(["65,77", "65.77"], "f.csv")


def _grouped(value: int, decimals: str, group: str, point: str) -> str:
    text = f"{value:,}".replace(",", group)
    return text + (point + decimals if decimals else "")


@given(
    st.integers(0, 2**53), st.text("0123456789", min_size=0, max_size=2), st.sampled_from([",.", ".,", "\u202f,", " ."])
)
def test_formatted_numbers_come_back(value: int, decimals: str, signs: str) -> None:
    group, point = signs
    cell = _grouped(value, decimals, group, point)
    assert parse_number(cell, point) == float(f"{value}.{decimals or 0}")


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(cell: str) -> None:
    try:
        parse_number(cell)
    except ValueError:
        assert not is_missing(cell)
    with contextlib.suppress(InputError):
        assert number_style([cell], "f.csv") in (".", ",")


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("nsecond", 1, "ns"),
        ("ns", 1, "ns"),
        ("usecond", 1e3, "ns"),
        ("us", 1e3, "ns"),
        ("ms", 1e6, "ns"),
        ("second", 1e9, "ns"),
        ("byte", 1, "byte"),
        ("Kbyte", 1e3, "byte"),
        ("Gbyte", 1e9, "byte"),
        ("MB", 1e6, "byte"),
        ("byte/second", 1, "byte/s"),
        ("Gbyte/second", 1e9, "byte/s"),
        ("Tbyte/s", 1e12, "byte/s"),
        ("byte/ns", 1e9, "byte/s"),
        ("cycle/nsecond", 1e9, "hz"),
        ("cycle/second", 1, "hz"),
        ("Ghz", 1e9, "hz"),
        ("Mhz", 1e6, "hz"),
        ("hz", 1, "hz"),
        ("Kbyte/block", 1e3, "byte/block"),
        ("register/thread", 1, "register/thread"),
        ("sector/us", 1e6, "sector/s"),
        ("%/Kbyte", 1e-3, "%/byte"),
        ("branches", 1, "branch"),
        ("sectors", 1, "sector"),
        ("%", 1, "%"),
        ("", 1, ""),
        ("SM", 1, "SM"),
    ],
)
def test_units_of_every_year(unit: str, factor: float, base: str) -> None:
    scale, name = base_unit(unit, "f.csv, column x")
    assert scale == pytest.approx(factor, rel=1e-12)
    assert name == base


@pytest.mark.parametrize("unit", ["furlong", "Qbyte", "byte/furlong"])
def test_an_unknown_unit_names_its_column(unit: str) -> None:
    with pytest.raises(InputError, match=r"f\.csv, column dram__x") as caught:
        base_unit(unit, "f.csv, column dram__x")
    assert unit in str(caught.value)


@given(st.sampled_from(["", "K", "M", "G", "T"]), st.sampled_from(["byte", "byte/s", "byte/block", "hz"]))
def test_prefixes_scale_by_a_thousand(prefix: str, unit: str) -> None:
    scale, base = base_unit(prefix + unit, "f")
    assert scale == 1000.0 ** "_KMGT".index(prefix or "_")
    assert base == unit


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_every_encoding_of_a_redirected_file(encoding: str) -> None:
    assert decode('"ID","Name"\r\n"0","µ"\r\n'.encode(encoding)).lstrip("\ufeff") == '"ID","Name"\r\n"0","µ"\r\n'


def test_broken_bytes_are_no_reason_to_stop() -> None:
    assert decode(b"kernel_\xff\xc3") == "kernel_\ufffd\ufffd"

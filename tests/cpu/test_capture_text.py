"""Numbers, locales and units: what a cell means, decided for a whole file and never guessed."""

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capture.text import (
    C_LOCALE,
    AmbiguousNumbersError,
    NumberStyle,
    decide_locale,
    decode,
    is_missing,
    locale_style,
    open_text,
    parse_integer,
    parse_number,
    text_start,
)
from analysis.capture.units import base_unit
from analysis.formats.errors import InputError, UsageError

EN, DE = locale_style("en"), locale_style("de")


@pytest.mark.parametrize(
    ("cell", "style", "value"),
    [
        ("628032", EN, 628032.0),
        ("628032", C_LOCALE, 628032.0),
        ("4,963,609,951.19", EN, 4963609951.19),
        ("6.738.204.422,70", DE, 6738204422.70),
        ("65,77", DE, 65.77),
        ("27.595.520", DE, 27595520.0),
        ("1,1651,1533", EN, 116511533.0),  # groups of four
        ("29,0127.0", EN, 290127.0),
        ("6,28,032", EN, 628032.0),  # en_IN
        ("628\u202f032", DE, 628032.0),  # fr_FR
        ("628\u00a0032,5", DE, 628032.5),
        ("628 032", EN, 628032.0),
        ("1'234.5", EN, 1234.5),  # de_CH
        ("1\u2019234.5", EN, 1234.5),
        ("1.5e3", EN, 1500.0),
        ("-0.25", C_LOCALE, -0.25),
        (".5", EN, 0.5),
        ("5916528 (IMAD: 1125008; DFMA: 884736)", EN, 5916528.0),
    ],
)
def test_a_number_in_every_locale(cell: str, style: NumberStyle, value: float) -> None:
    assert parse_number(cell, style) == value


@pytest.mark.parametrize("cell", ["", " ", "n/a", "nan", "-nan", "no data", "None", "-", "inf", "N/A"])
def test_what_is_missing_stays_missing(cell: str) -> None:
    assert is_missing(cell)
    assert math.isnan(parse_number(cell))
    assert parse_integer(cell) is None


@pytest.mark.parametrize(
    "cell",
    [
        "abc",
        "1.2.3e",
        "CachePreferNone",
        "0x3",
        "12 apples",
        "--3",
        "65,77,12",
        "1,23",
        "1.234,5",
        "1,,234",
        "1_000",
        "1,2345,678",
    ],
)
def test_text_is_no_number(cell: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number"):
        parse_number(cell, EN)


@pytest.mark.parametrize("cell", ["1.5", "0.125", "12,34", "1,2", "1e5", "0x10", "7.0"])
def test_a_whole_number_has_no_decimals(cell: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        parse_integer(cell)


@pytest.mark.parametrize("cell", ["628,032", "628.032", "628\u202f032", "628032", "62,8032", "6,28,032", " 628032 "])
def test_a_whole_number_in_every_locale(cell: str) -> None:
    assert parse_integer(cell) == 628032


@pytest.mark.parametrize(
    ("cells", "style"),
    [
        (["1", "22", "n/a"], EN),
        (["1,980,000"], EN),
        (["119,466,666,666.67", "34.000000"], EN),
        (["0.123"], EN),  # no group begins with a lonely 0
        (["1024.123"], EN),
        (["16,896", "12.34"], EN),
        (["1,1651,1533", "16,896"], EN),
        (["27.595.520", "117.344"], DE),
        (["65,77", "117.344"], DE),
        (["6.738.204.422,70"], DE),
        (["1 234,5", "117.344"], DE),
        (["CachePreferNone", "0x3", "a.b", "7,5"], DE),
    ],
)
def test_the_locale_of_a_file_needs_proof(cells: list[str], style: NumberStyle) -> None:
    assert decide_locale(cells, "f.csv") == style


@pytest.mark.parametrize(
    ("cell", "readings"),
    [("117.344", ("117.344", "117344")), ("16,896", ("16896", "16.896")), ("65,7712", ("657712", "65.7712"))],
)
def test_an_ambiguous_file_is_refused_with_both_readings(cell: str, readings: tuple[str, str]) -> None:
    with pytest.raises(AmbiguousNumbersError) as caught:
        decide_locale(["12", cell], "f.csv")
    assert caught.value.readings == readings
    for part in (*readings, cell, "--locale", "LC_ALL=C"):
        assert part in str(caught.value)


def test_the_user_decides_what_the_file_leaves_open() -> None:
    assert decide_locale(["117.344"], "f", given=DE) == DE
    assert decide_locale(["117.344"], "f", given=C_LOCALE) == C_LOCALE
    assert decide_locale(["117.344", "1.5"], "f", given=DE) == EN  # proof is proof
    with pytest.raises(InputError, match="16,896 cannot have been written in the locale"):
        decide_locale(["16,896"], "f", given=C_LOCALE)


def test_the_kind_of_a_column_is_proof() -> None:
    assert decide_locale([], "f", whole=["628.032"]) == DE
    assert decide_locale([], "f", whole=["628,032"]) == EN
    assert decide_locale([], "f", decimal=["4.194"]) == EN
    assert decide_locale([], "f", decimal=["4,194"]) == DE
    assert decide_locale(["117.344"], "f", whole=["628.032"]) == DE
    with pytest.raises(InputError, match="different locales"):
        decide_locale([], "f", whole=["628.032"], decimal=["4.194"])


def test_two_locales_in_one_file_are_refused() -> None:
    with pytest.raises(InputError, match="different locales"):
        decide_locale(["65,77", "65.77"], "f.csv")


@pytest.mark.parametrize(
    ("name", "decimal", "group"),
    [("C", ".", ""), ("POSIX", ".", ""), ("C.UTF-8", ".", ""), ("en", ".", ","), ("en_US.UTF-8", ".", ","), ("de", ",", "."),
     ("de_DE@euro", ",", "."), ("de_CH", ".", ","), ("fr-FR", ",", "."), ("es_MX", ".", ","), ("pl", ",", "."), ("ja", ".", ",")],
)  # fmt: skip
def test_names_of_locales(name: str, decimal: str, group: str) -> None:
    assert locale_style(name) == NumberStyle(decimal, group)


@pytest.mark.parametrize("name", ["", "xx", "german", "12"])
def test_an_unknown_locale_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="is not known"):
        locale_style(name)


def _grouped(value: int, decimals: str, group: str, point: str) -> str:
    text = f"{value:,}".replace(",", group)
    return text + (point + decimals if decimals else "")


@given(
    st.integers(0, 2**53),
    st.text("0123456789", min_size=0, max_size=2),
    st.sampled_from([",.", ".,", "\u202f,", " .", "\u00a0,", "'.", "\u2019."]),
)
def test_formatted_numbers_come_back(value: int, decimals: str, signs: str) -> None:
    group, point = signs
    cell = _grouped(value, decimals, group, point)
    assert parse_number(cell, EN if point == "." else DE) == float(f"{value}.{decimals or 0}")


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 99)), min_size=1),
    st.sampled_from([(",", "."), (".", ",")]),
)
def test_a_decided_file_is_never_read_wrong(numbers: list[tuple[int, int]], signs: tuple[str, str]) -> None:
    """Cells with two decimals and grouped whole ones: the true style is found, or the file is refused."""
    group, point = signs
    cells = [
        _grouped(value, f"{hundredths:02}" if hundredths % 3 else "", group, point) for value, hundredths in numbers
    ]
    try:
        style = decide_locale(cells, "f")
    except AmbiguousNumbersError:
        return
    values = [value + (hundredths / 100 if hundredths % 3 else 0) for value, hundredths in numbers]
    assert [parse_number(cell, style) for cell in cells] == pytest.approx(values)


@pytest.mark.slow
@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(cell: str) -> None:
    try:
        parse_number(cell)
    except ValueError:
        assert not is_missing(cell)
    with contextlib.suppress(InputError):
        assert decide_locale([cell], "f.csv") in (EN, DE)


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
        ("KB", 1e3, "byte"),
        ("KiB", 1024, "byte"),
        ("MiB", 1024**2, "byte"),
        ("GiB", 1024**3, "byte"),
        ("MBps", 1e6, "byte/s"),
        ("MB/s", 1e6, "byte/s"),
        ("B/s", 1, "byte/s"),
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


TEXT = '"ID","Name"\r\n"0","µ"\r\n'


@pytest.mark.parametrize(
    "raw",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
    ],
)
@pytest.mark.parametrize("copies", [1, 60_000])
def test_every_encoding_of_a_redirected_file(tmp_path: Path, raw: bytes, copies: int) -> None:
    assert decode(raw).lstrip("\ufeff") == TEXT
    mark = raw[:2] if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else b""
    (tmp_path / "f").write_bytes(mark + raw.removeprefix(mark) * copies)
    opened = open_text(tmp_path / "f")
    assert bytes(opened)[text_start(opened) :].decode().replace("\ufeff", "") == TEXT * copies


def test_broken_bytes_are_no_reason_to_stop() -> None:
    assert decode(b"kernel_\xff\xc3") == "kernel_\u00ff\u00c3"

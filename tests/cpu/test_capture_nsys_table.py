"""nsys tables from bytes: Arrow and the reader of lines agree, and damage never becomes a wrong number."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture import nsys_csv, nsys_table
from analysis.capture.nsys_numbers import read_file
from analysis.capture.nsys_reports import parse_header
from analysis.capture.text import open_text
from analysis.formats.errors import InputError

GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)
PUSHPOP = (
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,"
    "RangeStack,NameTree\n"
)
KERN_EXEC = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
    "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
)
KERN_SUM = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
BY_RANGE = (
    "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
    "Kernel Name\n"
)


def quoted(name: str) -> str:
    """A name as nsys prints it: in quotes where it holds a comma, inner quotes left raw."""
    return f'"{name}"' if "," in name else name


def gpu_row(start: int, duration: int, name: str, size: str = "") -> str:
    grid = ",,,,,,,,," if size else "64,2,1,128,1,1,32,0.000,0.000,"
    return f"{start},{duration},7,{grid}{size},,,,NVIDIA H200 (0),1,,7,{quoted(name)}\n"


def range_row(start: int, duration: int, name: str, range_id: int) -> str:
    return (
        f"{start},{start + duration},{duration},0,{duration},{quoted(':' + name)},11,22,0,0,{range_id},,:{range_id},"
        f"{quoted(':' + name)}\n"
    )


def columns(text: str | bytes, *, fast: bool) -> list[dict[str, list[object]]]:
    """Everything that is in a file, decided and converted."""
    raw = text if isinstance(text, bytes) else text.encode()
    out = []
    for table in read_file(raw, "f.csv", fast=fast):
        cells = {}
        for name, column in zip(table.raw.columns.column_names, table.raw.columns.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                cells[name] = list(table.categories(name))
            else:
                cells[name] = table.floats(name).tolist()
        out.append({"report": [table.report], **cells})
    return out


def both(text: str | bytes) -> list[dict[str, list[object]]] | str:
    """What both ways make of a file: the same columns, or an error each."""
    results: list[object] = []
    for fast in (True, False):
        try:
            results.append(columns(text, fast=fast))
        except InputError as error:
            results.append("refused" if "\n" not in str(error) else "refused at length")
    assert str(results[0]) == str(results[1])
    return results[0]  # type: ignore[return-value]


NAMES = st.one_of(
    st.sampled_from(
        [
            "void ns::softmax<(int)4, float>(float *, int)", 'void softmax(float*, "q", int)', 'say "hi"', '"', '""', '"a',
            'a"', '"x" y', 'f("x,y",1)', "None", "nan", "-", "", "a,b", "1,2,3", "11,22,0,0,5,,:5,x", "π/2 · ядро", "=1+1",
            "<script>", "k'", "tab\tname", "Processing [x]", "[CUDA memset]", "µ…", '{"op": "mm", "n": 3}', "Start (ns)",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
)  # fmt: skip
NUMBERS = st.integers(0, 2**60)
GPU_TABLES = st.lists(
    st.tuples(NUMBERS, NUMBERS, NAMES, st.sampled_from(["", "4.194", "0.000", "123456.789"])), max_size=8
).map(lambda rows: GPU + "".join(gpu_row(*row) for row in rows))
RANGE_TABLES = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), NAMES), max_size=8).map(
    lambda rows: PUSHPOP + "".join(range_row(*row, i) for i, row in enumerate(rows))
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.one_of(GPU_TABLES, RANGE_TABLES), st.sampled_from(["\n", "\r\n"]))
def test_both_ways_read_the_same(text: str, line_end: str) -> None:
    both(text.replace("\n", line_end))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NAMES.filter(lambda name: name.strip() == name != "")), min_size=1, max_size=6)
)
def test_names_and_numbers_come_back(rows: list[tuple[int, int, str]]) -> None:
    """What nsys prints is what is read, unless a name makes its row ambiguous, which is refused."""
    read = both(GPU + "".join(gpu_row(*row) for row in rows))
    if isinstance(read, str):
        return
    for cells, (_, _, name) in zip(read[0]["Name"], rows, strict=True):
        whole = len(name) > 1 and name[0] == name[-1] == '"'  # quotes of the name or of nsys: the print is the same
        assert cells == (name if "," in name or not whole else name[1:-1])
    table = read_file((GPU + "".join(gpu_row(*row) for row in rows)).encode(), "f")[0]
    assert table.integers("Start").tolist() == [row[0] for row in rows]
    assert table.integers("Duration").tolist() == [row[1] for row in rows]


WHOLE = GPU + "".join(
    gpu_row(1000 + 2000 * i, 500 + 3 * i % 5, "void k<(int)4, float>(float *, int)") for i in range(5)
)
COPIES = GPU + "".join(
    gpu_row(1000 + 2000 * i, 500 + 3 * i % 5, "[CUDA memcpy Host-to-Device]", f"{i}.194") for i in range(5)
)
RANGES = PUSHPOP + "".join(range_row(100 * i, 50 + i, "h.0, attn", i) for i in range(5))
LAUNCHES = KERN_EXEC + "".join(
    f"{start},90,{start + 90},10,{start + 100},500,600,11,22,0,cudaLaunchKernel,  64    2    1, 128    1    1,"
    '"void k<(int)4, float>(float *, int)"\n'
    for start in (1000, 3000, 5000)
)
SUMS = (
    KERN_SUM
    + '60.0,1200,2,600.0,600.0,500,700,141.4,"void k<(int)4, float>(float *)"\n40.0,800,1,800.0,800.0,800,800,0.0,k2\n'
)
PER_RANGE = BY_RANGE + ":fwd,PushPop,11,22,1,2,900,450.0,450.0,400,500,70.7,k\n,,11,22,0,1,70,70.0,70.0,70,70,0.0,k\n"
CALLS = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n" + "".join(
    f'{400 + 100 * i},{99 - i},cudaLaunchKernel,0,{i},11,22,20,"python3, main"\n' for i in range(4)
)
SIZES = (
    "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
    "4.300,2,2.150,2.150,0.106,4.194,2.891,[CUDA memcpy Host-to-Device]\n0.500,1,0.500,0.500,0.500,0.500,0.000,[CUDA memset]\n"
)
PROJECTED = (
    "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,PID,TID,NumGPUOps,Lvl,"
    "NumChild,RangeId,ParentId,RangeStack\n"
    ':fwd,1000,500,900,300,PushPop,11,22,3,0,1,3,,:3\n":a, b",1100,100,950,30,PushPop,11,22,1,1,0,4,3,:3:4\n'
)
GERMAN = (
    KERN_SUM
    + '"60,0","1.200.000",2,"600.000,0","600.000,0","500.000","700.000","141.421,4",k\n"40,0","800.000",1,"800.000,0","800.000,0","800.000","800.000","0,0",l\n'
)
ALL = [WHOLE, COPIES, RANGES, LAUNCHES, SUMS, PER_RANGE, CALLS, SIZES, PROJECTED, GERMAN]


def rows_of(read: list[dict[str, list[object]]]) -> set[tuple[object, ...]]:
    """The rows of all tables as (column, number) pairs, text left out."""
    rows = set()
    for table in read:
        numbers = {name: cells for name, cells in table.items() if cells and not isinstance(cells[0], str)}
        for values in zip(*numbers.values(), strict=True):
            rows.add(tuple((name, str(value)) for name, value in zip(numbers, values, strict=True)))
    return rows


def damage(text: str, rng: random.Random) -> str:
    """One structural damage: something cut out, doubled or put in, a sign exchanged, columns swapped, a unit changed."""
    lines = text.split("\n")
    kind = rng.choice(["cut", "drop", "comma", "quote", "sign", "unit", "swap header", "delimiter", "locale", "group"])
    place = rng.randrange(1, len(text))
    if kind == "cut":
        return text[:place]
    if kind == "drop":
        return text[:place] + text[place + 1 :] if text[place] in ',"\n ' else text
    if kind == "comma":
        return text[:place] + "," + text[place:]
    if kind == "quote":
        return text[:place] + '"' + text[place:]
    if kind == "sign":
        return text[:place] + rng.choice(".,;\t") + text[place + 1 :] if text[place] in ".,;" else text
    if kind == "unit":
        return text.replace("(ns)", rng.choice(["(us)", "(ms)", "", "(MB)"]), 1)
    if kind == "locale":  # the decimal sign of one row
        row = rng.randrange(1, len(lines))
        lines[row] = re.sub(r"(?<=,)([0-9]+)\.([0-9]+)(?=,)", r'"\1,\2"', lines[row])
        return "\n".join(lines)
    if kind == "group":  # thousands of one row
        row, group = rng.randrange(1, len(lines)), rng.choice(".,' \u202f")
        lines[row] = re.sub(r"(?<=,)([0-9]{1,3})([0-9]{3})(?=,)", rf'"\1{group}\2"', lines[row])
        return "\n".join(lines)
    if kind == "swap header":
        cells = lines[0].split(",")
        a, b = rng.sample(range(len(cells)), 2)
        cells[a], cells[b] = cells[b], cells[a]
        return "\n".join([",".join(cells), *lines[1:]])
    return text.replace(",", rng.choice(";\t|"), rng.choice([-1, 3]))


@pytest.mark.slow
@pytest.mark.parametrize("text", ALL)
def test_damage_never_becomes_a_wrong_number(text: str) -> None:
    check_damage(text, tries=60, seed=7)


def check_damage(text: str, tries: int, seed: int) -> None:
    """A damaged file is refused, or every row that is read from it stands in the whole file too."""
    true = rows_of(columns(text, fast=True))
    rng = random.Random(seed)
    for _ in range(tries):
        damaged = damage(text, rng)
        read = both(damaged)
        if isinstance(read, str):
            continue
        names = {name for row in true for name, _ in row}
        known = {frozenset(row) for row in true}
        for row in rows_of(read):
            kept = frozenset(pair for pair in row if pair[0] in names and pair[1] != "<NA>")
            assert any(kept <= whole for whole in known), damaged


def test_swapped_columns_in_the_rows_are_seen_where_nsys_prints_facts_twice() -> None:
    for text, a, b in (
        (RANGES, 0, 1),
        (RANGES, 2, 3),
        (LAUNCHES, 0, 4),
        (LAUNCHES, 1, 5),
        (SUMS, 1, 2),
        (SUMS, 5, 6),
        (WHOLE, 0, 1),
        (COPIES, 0, 1),
    ):
        head, *lines = text.strip("\n").split("\n")
        swapped = []
        for line in lines:
            cells = line.split(",")
            cells[a], cells[b] = cells[b], cells[a]
            swapped.append(",".join(cells))
        assert both("\n".join([head, *swapped]) + "\n") == "refused"


@pytest.mark.slow
def test_a_large_file_is_read_in_pieces_and_broken_lines_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys_table, "_PIECE", 4096)
    monkeypatch.setattr("analysis.capture.text._MAPPED_FROM", 4096)
    rows = [gpu_row(i, i % 7, 'k "raw", quote' if i % 97 == 0 else f"void k<{i % 5}, 1>()") for i in range(3000)]
    for text in (
        GPU + "".join(rows),
        f"Processing [x] with [y]... \n{GPU}{''.join(rows)}\n\nProcessing [z]\n{KERN_SUM}100.0,5,1,5.0,5.0,5,5,0.0,k\n",
    ):
        (tmp_path / "f").write_text(text)
        raw = open_text(tmp_path / "f")
        assert not isinstance(raw, bytes)
        tables = read_file(raw, "f")
        assert tables[0].integers("Start").tolist() == list(range(3000))
        assert tables[0].categories("Name")[97] == 'k "raw", quote'
        assert len(tables[0].categories("Name").categories) == 6
    damaged = GPU + "".join([*rows[:2000], "17,oops,3,4\n", *rows[2000:]])
    (tmp_path / "f").write_text(damaged)
    with pytest.raises(InputError, match="line 2002 has 4 fields"):
        read_file(open_text(tmp_path / "f"), "f")


def test_a_size_beyond_64_bits_is_refused() -> None:
    assert both(COPIES.replace("4.194", "4194194194194194.194")) != "refused"  # still a float
    for size in ("41941941941941941.194", "9" * 40 + ".5"):
        with pytest.raises(InputError, match="not a 64-bit number"):
            nsys_csv.gpu_trace(read_file(COPIES.replace("4.194", size).encode(), "f")[0])


def test_a_row_that_can_be_split_in_two_ways_is_refused() -> None:
    header = parse_header(BY_RANGE)
    assert header is not None
    line = '"a,PushPop,1,2,3,4,5,6,7,8,9,1,b",PushPop,1,2,3,4,5,6,7,8,9,1,"c"'
    assert nsys_table.split_row(line, header) is not None
    twice = '"a",PushPop,1,2,3,4,5,6,7,8,9,1,"b",PushPop,1,2,3,4,5,6,7,8,9,1,"c"'
    assert nsys_table.split_row(twice, header) is None


@pytest.mark.parametrize("name", ['x="1"', ':{"a":1}', 'say "5" 6', 'layer["0"].x'])
def test_a_quote_before_a_digit_is_no_second_row(name: str) -> None:
    header = parse_header(PROJECTED.split("\n")[0])
    assert header is not None
    rest = "1000,500,900,300,PushPop,11,22,3,0,1,3,,:3"
    assert nsys_table.split_row(f"{name},{rest}", header) == [name, *rest.split(",")]
    sums = parse_header(KERN_SUM.strip("\n"))
    assert sums is not None
    row = '60.0,1200,2,600.0,600.0,500,700,141.4,"void k<4, 2>()"'
    assert nsys_table.split_row(row, sums) is not None
    assert nsys_table.split_row(f"{row};{row}", sums) is None
    assert nsys_table.split_row(f"{row}{row}", sums) is None


def test_a_cell_that_is_no_number_is_named() -> None:
    rows = ["1,10,1,20,2,1,1,0,kernel", "1,10,1,abc,2,1,1,0,kernel", "1,10,1,20,2,1,1,0,kernel"]
    with pytest.raises(InputError, match=r"line 3 has 'abc' in column 'Avg'; the file is damaged"):
        nsys_table.read_tables((KERN_SUM + "\n".join(rows) + "\n").encode(), "x.csv")


def test_a_line_longer_than_a_piece_is_damage_and_no_endless_search() -> None:
    raw = GPU + gpu_row(5000, 90, "k", "") + "1" * 900_000 + "\n"
    with pytest.raises(InputError, match="line 3 has 1 fields"):
        read_file(raw.encode(), "f")

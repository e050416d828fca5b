"""The census: ptxas and disassembly text written by hand, occupancy against ncu's own, the comparison with the table."""

import pytest

from kernels import build, census, objects

pytestmark = pytest.mark.studies

SASS = """
Fatbin elf code:
================
arch = sm_90

	code for sm_90
		Function : _Z6kernelIfLi4EEvPKT_PS0_
	.headerflags	@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                               /* 0x00000a00ff017b82 */
                                                                                        /* 0x000ff00000000800 */
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;            /* 0x000000048104b981 */
        /*0020*/                   LDG.E.U8 R8, desc[UR4][R2.64+0x10] ;
        /*0030*/                   LDG.E.LTC128B.128.CONSTANT R8, desc[UR4][R2.64+0x10] ;
        /*0040*/                   LDG.E.S16 R8, [R2.64+0x10] ;
        /*0050*/             @UP0  LDG.E.64.STRONG.GPU R8, [R2.64+0x10] ;
        /*0060*/                   LDG.E.LTC64B R8, [R2.64+0x10] ;
        /*0070*/                   STG.E.EF.128 desc[UR4][R2.64], R4 ;
        /*0080*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0090*/                   LDS.U.128 R12, [R0] ;
        /*00a0*/                   LDSM.16.M88.4 R12, [R0] ;
        /*00b0*/                   LDSM.16.MT88 R12, [R0] ;
        /*00c0*/                   STS.64 [R0], R12 ;
        /*00d0*/                   STSM.16.M88.2 [R0], R12 ;
        /*00e0*/                   STL.128 [R1], R12 ;
        /*00f0*/                   LDL.LU R12, [R1] ;
        /*0100*/                   LD.E.64 R12, [R2.64] ;
        /*0110*/                   ST.E.U8 [R2.64], R12 ;
        /*0120*/                   LDGSTS.E.BYPASS.LTC128B.128 [R9], [R2.64] ;
        /*0130*/              @!PT LDS RZ, [RZ] ;
        /*0140*/                   HFMA2.MMA R2, -RZ, RZ, 0, 0 ;
        /*0150*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0160*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0170*/                   IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4 ;
        /*0180*/                   UBLKCP.S.G [UR8], [UR4], UR9 ;
        /*0190*/                   UBLKPF.L2 [UR4], UR9 ;
        /*01a0*/                   EXIT ;
.L_x_0:
        /*01b0*/                   BRA 0x1b0;
        /*01c0*/                   NOP;
        /*01d0*/                   NOP;
		..........


		Function : _Z5emptyv
        /*0000*/                   EXIT ;
"""
PTXAS = """ptxas info    : Compiling entry function '_Z6kernelIfLi4EEvPKT_PS0_' for 'sm_90'
ptxas info    : Function properties for _Z6kernelIfLi4EEvPKT_PS0_
    4096 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes cumulative stack size, 1056 bytes smem
ptxas info    : Compile time = 7.1 ms
"""
ELF = """
.nv.info
	<0x1>
	Attribute:	EIATTR_FRAME_SIZE
.nv.info._Z6kernelIfLi4EEvPKT_PS0_
	Attribute:	EIATTR_MAX_THREADS
	Format:	EIFMT_SVAL
	Value:	0x40 0x2 0x1
.nv.info._Z5emptyv
	Attribute:	EIATTR_CBANK_PARAM_SIZE
	Value:	0x24
"""


def test_sass_is_counted_by_function():
    found = census.read_sass(SASS)
    assert list(found) == ["_Z6kernelIfLi4EEvPKT_PS0_", "_Z5emptyv"]
    code = found["_Z6kernelIfLi4EEvPKT_PS0_"]
    assert code.code_bytes == 0x1E0
    # neither NOP nor what is predicated off for good
    assert code.opcodes.total() == 27
    assert "NOP" not in code.opcodes
    assert "LDS" not in code.opcodes
    assert found["_Z5emptyv"].opcodes == {"EXIT": 1}
    assert census.read_sass("cuobjdump info: no code\n") == {}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("global_load", {8: 1, 16: 1, 32: 1, 64: 1, 128: 2}),
        ("global_store", {16: 1, 128: 1}),
        ("shared_load", {32: 1, 128: 2}),
        ("shared_store", {64: 2}),
        ("local_load", {32: 1}),
        ("local_store", {128: 1}),
        ("generic_load", {64: 1}),
        ("generic_store", {8: 1}),
        ("async_copy", {128: 1}),
    ],
)
def test_widths_of_accesses(column, expected):
    opcodes = census.read_sass(SASS)["_Z6kernelIfLi4EEvPKT_PS0_"].opcodes
    assert census.accesses(opcodes, census.ACCESSES[column]) == expected


@pytest.mark.parametrize(
    ("opcode", "bits"),
    [
        ("LDG.E", 32),
        ("LDG.E.U8.CONSTANT", 8),
        ("LDG.E.S8", 8),
        ("STG.E.U16", 16),
        ("LDG.E.EL.64", 64),
        ("LDG.E.LTC128B", 32),
        ("LDG.E.LTC256B.64", 64),
        ("LDG.E.ENL2.256", 256),
        ("LDS", 32),
        ("STL.U8", 8),
    ],
)
def test_access_bits(opcode, bits):
    assert census.access_bits(opcode) == bits


def test_a_row_from_compiler_and_disassembler():
    (usage,) = build.read_ptxas(PTXAS)
    assert usage == build.Usage("_Z6kernelIfLi4EEvPKT_PS0_", "sm_90", 40, 12, 4096, 1056)
    threads = census.read_max_threads(ELF)
    assert threads == {"_Z6kernelIfLi4EEvPKT_PS0_": 128}
    made = census.row_of(usage, census.read_sass(SASS)[usage.symbol], threads[usage.symbol], 90)
    assert made["global_load"] == "8:1 16:1 32:1 64:1 128:2"
    assert made["local_instructions"] == "2"
    assert (made["stack_bytes"], made["spill_bytes"], made["shared_bytes"]) == ("4096", "12", "1056")
    assert (made["occupancy_128_frac"], made["limiter_128"]) == ("0.75", "registers")
    # launch bounds exclude larger blocks
    assert (made["occupancy_256_frac"], made["limiter_256"]) == ("", "")
    assert set(made) | {"op", "source", "kernel", "nvcc"} == set(census.COLUMNS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "void softmax_v03_causal<float, 4, 2, 128, 1>(float const*, float*, int)",
            "softmax_v03_causal<float, 4, 2, 128, 1>",
        ),
        ("void k<__nv_bfloat16, (int)8, (bool)1>(__nv_bfloat16 const*)", "k<bf16, 8, 1>"),
        ("(anonymous namespace)::fill(float*, int)", "fill"),
        ("void (anonymous namespace)::fill<(Mode)1>(float*)", "fill<(Mode)1>"),
        ("ceiling_ffma(float*, int)", "ceiling_ffma"),
    ],
)
def test_readable_names(name, expected):
    assert census.readable(name) == expected


# On an H200 ncu reported these theoretical occupancies: softmax kernels and library matrix products.
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "expected"),
    [(256, 20, 0, 1.0), (128, 25, 32, 1.0), (128, 29, 32, 1.0), (256, 254, 0, 0.125), (256, 202, 0, 0.125)],
)
def test_occupancy_is_what_ncu_reports(threads, registers, shared, expected):
    assert census.occupancy(90, threads, registers, shared)[0] == expected


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "expected"),
    [
        (90, 32, 16, 0, (0.5, "blocks")),
        (90, 128, 47, 0, (0.625, "registers")),
        (90, 128, 32, 40000, (0.3125, "shared")),
        # 21 blocks of 3 warps; the 64th warp stays free
        (90, 96, 32, 0, (0.984375, "warps")),
        (75, 1024, 64, 0, (1.0, "warps")),
        (75, 1024, 65, 0, None),
        (86, 32, 16, 0, (1 / 3, "blocks")),
        (86, 1024, 40, 0, (2 / 3, "warps")),
        (89, 64, 16, 0, (1.0, "warps")),
        (80, 128, 255, 0, (0.125, "registers")),
        (80, 512, 32, 33000, (1.0, "warps")),
        (90, 128, 32, 233473, None),
        (90, 2048, 16, 0, None),
    ],
)
def test_occupancy_and_limiter(arch, threads, registers, shared, expected):
    assert census.occupancy(arch, threads, registers, shared) == expected


def test_limits_cover_every_architecture():
    for arch in build.ARCHITECTURES:
        most = census.limits(arch)
        # a full multiprocessor: the threads that NVIDIA's table gives
        assert most["warps"] * most["warp_threads"] == {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048}[arch]


def test_a_source_that_does_not_compile_is_one_sentence(tmp_path):
    errors = "v09.cu(3): error: expected a ;\nmore\n"
    broken = objects.Compiled(tmp_path / "gelu" / "v09.cu", 75, tmp_path / "o", "", errors)
    with pytest.raises(build.BuildError, match=r"^kernels/gelu/v09.cu does not compile for sm_75: v09.cu\(3\): error"):
        census.rows_of(broken, "13.0.88")


def test_an_object_is_made_anew_when_a_header_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "FOLDER", tmp_path)
    (tmp_path / "include").mkdir()
    (tmp_path / "op").mkdir()
    source = tmp_path / "op" / "v01.cu"
    source.write_text('#include "op.h"\n#include <cuda.h>\n')
    (tmp_path / "op" / "op.h").write_text('#include "vec.cuh"\n')
    (tmp_path / "include" / "vec.cuh").write_text("// 1\n")
    (tmp_path / "include" / "other.cuh").write_text("// 1\n")
    first = objects.object_fingerprint("13.0.88", source, "90")
    (tmp_path / "include" / "other.cuh").write_text("// 2\n")
    assert objects.object_fingerprint("13.0.88", source, "90") == first
    (tmp_path / "include" / "vec.cuh").write_text("// 2\n")
    assert objects.object_fingerprint("13.0.88", source, "90") != first
    assert objects.object_fingerprint("13.1.0", source, "90") != objects.object_fingerprint("13.0.88", source, "90")
    assert objects.target(source, 90) == "90"
    assert objects.runs_on(source, 80)
    source.write_text("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#endif\n")
    assert (objects.target(source, 90), objects.target(source, 80)) == ("90a", "80")
    assert (objects.runs_on(source, 90), objects.runs_on(source, 80)) == (True, False)


def test_checkouts_share_objects_and_forget_the_oldest(tmp_path, monkeypatch):
    nvcc, calls = tmp_path / "nvcc", tmp_path / "calls"
    nvcc.write_text(
        f'#!/bin/sh\necho x >> "{calls}"\necho "ptxas info" >&2\nwhile [ "$1" != -o ]; do shift; done\ncp "{nvcc}" "$2"\n'
    )
    nvcc.chmod(0o755)

    def compile_in(checkout, text):
        source = tmp_path / checkout / "op" / "v01.cu"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        monkeypatch.setattr(objects, "FOLDER", source.parent.parent)
        monkeypatch.setattr(objects, "OBJECTS", source.parent.parent / "build" / "objects")
        compiled = objects.compile_one(str(nvcc), "13.0.88", source, 80)
        assert (compiled.log, compiled.errors, compiled.object.is_file()) == ("ptxas info\n", "", True)
        return compiled.object, calls.read_text().count("x")

    monkeypatch.setenv("KERNEL_LEDGER_CACHE", str(tmp_path / "cache"))
    first = compile_in("one", "// 1")
    assert compile_in("two", "// 1") == first
    for number in range(2, objects.KEPT_OBJECTS + 2):
        assert compile_in("two", f"// {number}")[1] == number
    assert not first[0].is_file()
    assert len(list((tmp_path / "cache" / "objects").iterdir())) == 2 * objects.KEPT_OBJECTS
    monkeypatch.setenv("KERNEL_LEDGER_CACHE", "off")
    assert compile_in("two", "// 2")[0].parent == tmp_path / "two" / "build" / "objects"


def test_a_fingerprint_follows_the_rungs_that_a_source_calls(tmp_path):
    folder = tmp_path / "op"
    folder.mkdir()
    (folder / "op.h").write_text("int op_v01_a(int); int op_v02_b(int); int op_v03_c(int);")
    (folder / "v01_a.cu").write_text('#include "op.h"\nint op_v01_a(int x) { return x; }')
    (folder / "step.cuh").write_text("// as op_v03_c does\ninline int step(int x) { return op_v01_a(x); }")
    (folder / "v02_b.cu").write_text('#include "op.h"\n#include "step.cuh"\nint op_v02_b(int x) { return step(x); }')
    (folder / "v03_c.cu").write_text('#include "op.h"\nint op_v03_c(int x) { return op_v02_b(x); }')

    def prints():
        return [objects.fingerprint(folder / f"{name}.cu") for name in ("v01_a", "v02_b", "v03_c")]

    before = prints()
    assert len(set(before)) == 3
    (folder / "v03_c.cu").write_text((folder / "v03_c.cu").read_text().replace("op_v02_b(x)", "op_v02_b(x + 1)"))
    after = prints()
    assert after[:2] == before[:2]
    assert after[2] != before[2]
    (folder / "v01_a.cu").write_text((folder / "v01_a.cu").read_text() + "  // said otherwise")
    assert prints() == after
    (folder / "v01_a.cu").write_text('#include "op.h"\nint op_v01_a(int x) { return -x; }')
    assert all(new != old for new, old in zip(prints(), after, strict=True))
    assert set(objects.with_headers(folder / "v02_b.cu")) == {"v02_b.cu", "op.h", "step.cuh"}

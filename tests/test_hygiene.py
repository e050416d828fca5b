"""What is committed is fit for the public: no binaries, nothing of a machine or a person, pinned dependencies."""

import csv
import getpass
import io
import json
import re
import socket
import subprocess
import tarfile
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from analysis.formats import packed
from tests.checkout import ROOT, by_git

PICTURES = {".png"}
FORBIDDEN_SUFFIXES = {
    ".nsys-rep", ".ncu-rep", ".sqlite", ".qdstrm", ".qdrep", ".safetensors", ".pt", ".pth", ".bin", ".so", ".o", ".a",
    ".cubin", ".fatbin", ".whl", ".pyc", ".zip", ".gz", ".dll", ".exe",
}  # fmt: skip
# SQLite, ELF, zip, gzip: whatever the file is called.
MAGIC = (b"SQLite format 3\0", b"\x7fELF", b"PK\3\4", b"\x1f\x8b")
# Columns of tests/answer_key/columns.py: integers as bytes, texts as texts.
COLUMN = re.compile(r"tests/answer_key/\w+/captures\.tar\.xz/.+")
# A person's or a machine's folders; /usr, /opt and /etc are the same everywhere and may stand in a text. What must not
# precede the slash is looked at behind it: a pattern that begins with a character is found faster.
PRIVATE_PATH = re.compile(
    rb"""/(?<![\w.*}-]/)(?:home|root|Users|work|tmp|mnt|workspace|scratch|builds)/[A-Za-z0-9_.-]+"""
)
# Tests and the scrubber have to spell such paths out.
SPELLED_OUT = ("tests/", "harness/profile/scrub.py")
REPORT_BYTES = 9_000_000
TREE_BYTES = 38_000_000


@cache
def committed() -> tuple[Path, ...]:
    """Every file that git tracks, or would: reports are looked at before they are committed, too."""
    if (names := by_git()) is None:
        pytest.skip("not a git checkout")
    return tuple(ROOT / name for name in names)


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, bytes]]:
    """(name, content, unpacked) of the committed files that are no pictures."""
    found = []
    for path in committed():
        name = str(path.relative_to(ROOT))
        if path.name.endswith(".tar.xz"):
            with tarfile.open(path) as archive:
                members = [(one.name, archive.extractfile(one)) for one in archive]
                found += [(f"{name}/{member}", file.read()) for member, file in members if file is not None]
        elif path.suffix not in PICTURES:
            found.append((name, packed.read_bytes(path)))
    return found


def test_no_binaries(texts: list[tuple[str, bytes]]) -> None:
    names = [str(path.relative_to(ROOT)) for path in committed()] + [name for name, _ in texts]
    assert [name for name in names if Path(name).suffix in FORBIDDEN_SUFFIXES] == []
    assert [name for name, content in texts if content.startswith(MAGIC)] == []
    assert [
        name
        for name, content in texts
        if b"\0" in content
        and content[:2] != b"\xff\xfe"
        and "data/" not in name
        and not name.endswith("samples.parquet")
        and not COLUMN.fullmatch(name)
    ] == []


def test_no_path_of_a_person_or_a_machine(texts: list[tuple[str, bytes]]) -> None:
    found = [
        f"{name}: {match[0].decode()}"
        for name, content in texts
        if not name.startswith(SPELLED_OUT)
        for match in PRIVATE_PATH.finditer(content)
    ]
    assert found == []


def test_no_message_of_a_commit_names_a_path_of_a_machine() -> None:
    """Subjects and bodies; some merges of the first days do, and a history is not written anew for them."""
    committed()
    command = ["git", "log", "--no-merges", "--format=%h %B"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert [found[0].decode() for found in PRIVATE_PATH.finditer(done.stdout)] == []
    merges = subprocess.run(["git", "log", "--merges", "--format=%H %B%x00"], cwd=ROOT, capture_output=True, check=True)
    naming = {one.split()[0][:8].decode() for one in merges.stdout.split(b"\0") if PRIVATE_PATH.search(one)}
    assert naming <= {
        "b4fcde86",
        "96fb8ebd",
        "d2911d67",
        "4ea3c0c5",
        "4e56b198",
        "cc11e689",
        "8b3e7537",
        "1c9650c9",
        "1fb67e36",
    }


def test_no_user_or_host_name(texts: list[tuple[str, bytes]]) -> None:
    ordinary = {"root", "host", "localhost", "user", "runner", "ubuntu", "debian", "ci", "docker"}
    names = {name for name in (getpass.getuser(), socket.gethostname(), socket.getfqdn()) if len(name) > 3} - ordinary
    found = [
        f"{name}: {word}"
        for name, content in texts
        for word in names
        if re.search(rb"\b%s\b" % re.escape(word.encode()), content)
    ]
    assert found == []


# --- reports/ ---


def reports() -> list[Path]:
    """Files under reports/."""
    return [path for path in committed() if path.is_relative_to(ROOT / "reports")]


def test_exports_name_no_host() -> None:
    for path in reports():
        lines = io.StringIO(packed.read_bytes(path).decode("utf-8", errors="replace"), newline="")
        if ".csv" not in path.suffixes or not lines.readline().startswith('"ID",'):
            continue
        lines.seek(0)
        rows = csv.DictReader(lines)
        next(rows)  # units
        for row in rows:
            assert row["Host Name"] == "host", path
            assert "/" not in row["Process Name"], path


def test_json_of_reports_holds_no_environment() -> None:
    secret = re.compile(r"environ|passw|(?<!_per_)token\b|secret|api_?key|hostname|user_?name", re.IGNORECASE)

    def keys(value: object) -> list[str]:
        if isinstance(value, dict):
            return [*value, *(key for item in value.values() for key in keys(item))]
        return [key for item in value for key in keys(item)] if isinstance(value, list) else []

    for path in reports():
        if ".json" in path.suffixes:
            assert [key for key in keys(json.loads(packed.read_bytes(path))) if secret.search(key)] == [], path


def test_reports_stay_small() -> None:
    assert sum(path.stat().st_size for path in reports()) < REPORT_BYTES
    assert len(reports()) <= 350


def test_the_tree_stays_small() -> None:
    """It has to travel to a machine with a GPU. Large captures are committed packed (`xz -9`): readers take them so."""
    assert sum(path.stat().st_size for path in committed()) < TREE_BYTES


# --- pyproject ---


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_lock_pins_what_ci_installs() -> None:
    """torch is the machine's own build; CI does not install the libraries that benchmarks compare with."""
    table = project()["project"]
    lock = (ROOT / ".ci" / "requirements.lock").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    assert len(re.findall(r"^\S+==.* \\\n    --hash=sha256:", lock, re.MULTILINE)) == len(
        re.findall(r"^\S+==", lock, re.MULTILINE)
    )
    extras = {
        name: names for name, names in table["optional-dependencies"].items() if name not in ("baselines", "tinygrad")
    }
    for wanted in map(Requirement, [*table["dependencies"], *(name for names in extras.values() for name in names)]):
        if wanted.name != "torch":
            assert [one.operator for one in wanted.specifier] == [">="], wanted
            assert wanted.specifier.contains(pinned[wanted.name]), wanted


def test_the_example_workflow_pins_its_actions_and_keeps_no_token() -> None:
    text = (ROOT / ".ci/example-workflow.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert len(used) > 5
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    audit = re.findall(r"pip-audit==.*", text)
    assert len(audit) == 1
    assert "--strict" in audit[0]  # without, a service that does not answer is a success
    assert not re.search(r"pip install|pipx run (?!pip-audit==)", text)  # but .ci/install, which checks hashes


def test_version_and_changelog_agree() -> None:
    version = project()["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert first
    assert first[1] == version

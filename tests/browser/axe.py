"""Get axe-core from npm, only for the tests of the page: it is never part of a page.

`source()` downloads the pinned version with npm, checks its integrity, and keeps it in build/. It returns None if npm
is missing or cannot reach the registry.
"""

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

PACKAGE, VERSION = "axe-core", "4.14.1"
INTEGRITY = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
KEPT = Path(__file__).parents[2] / "build" / "npm"


def source() -> str | None:
    """Return the script of axe-core, or None. Raises: ValueError if the package is not the pinned one."""
    archive = KEPT / f"{PACKAGE}-{VERSION}.tgz"
    if not archive.is_file():
        if not shutil.which("npm"):
            return None
        KEPT.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(KEPT), f"{PACKAGE}@{VERSION}"]
        if subprocess.run(command, capture_output=True, check=False, timeout=60).returncode:
            return None
    packed = archive.read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != INTEGRITY:
        raise ValueError(f"{archive.name} is not the package that was pinned: delete it")
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        member = files.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf-8")

"""The documentation builds as a site without a warning, asks for nothing on a network, and all its links resolve."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.checkout import ROOT

pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_opens_from_a_disk(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 30
    for page, text in pages.items():
        loaded = re.findall(r'<(?:script|img|source)\b[^>]*?\b(?:src|srcset)="?([^" >]+)', text)
        loaded += re.findall(r'<link\b[^>]*rel="?(?:stylesheet|preload)"?[^>]*href="?([^" >]+)', text)
        linked = re.findall(r'<a\b[^>]*?\bhref="?([^" >]+)', text)
        assert [one for one in loaded if "://" in one or one.startswith("//")] == [], page
        here = {unquote(one.partition("#")[0]) for one in [*loaded, *linked] if ":" not in one.partition("/")[0]}
        assert [one for one in here if one and not (page.parent / one).exists()] == [], page

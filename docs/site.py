"""Hooks of MkDocs: show every document of the checkout at its own path, and point other links at the repository."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "analysis/**/*.md", "kernels/**/*.md", "harness/**/*.md", "studies/**/*.md",
         "examples/README.md", "reports/README.md", "tests/README.md", "tests/answer_key/**/*.md")  # fmt: skip
PICTURES = {".svg", ".png"}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: Any) -> Files:
    """Return the pages, each at its path in the checkout, and the pictures that they show."""
    theme = [file for file in files if not Path(file.abs_src_path or "").is_relative_to(ROOT / "docs")]
    names = {path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)}
    names |= {path.relative_to(ROOT) for name in ("pictures", "assets") for path in (ROOT / "docs" / name).iterdir()}
    names |= {path for page in [*names] if page.suffix == ".md" for path in _pictures(page)}
    own = [File.generated(config, name.as_posix(), abs_src_path=str(ROOT / name)) for name in sorted(names)]
    return Files([*theme, *own])


def _pictures(page: Path) -> list[Path]:
    found = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    paths = [(ROOT / page.parent / one).resolve() for one in found if "://" not in one]
    return [path.relative_to(ROOT) for path in paths if path.suffix in PICTURES and path.is_file()]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return a page whose links to code, tables and folders lead to the repository: the site holds pages alone."""
    folder = (ROOT / page.file.src_uri).parent

    def there(match: re.Match[str]) -> str:
        path = (folder / match[1]).resolve()
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir() and files.get_file_from_path(f"{name}/README.md"):
            return f"{match[1].rstrip('/')}/README.md{match[2] or ''}"
        return match[0] if files.get_file_from_path(name) else f"{config['extra']['repository']}/blob/main/{name}"

    return _LINK.sub(there, markdown)

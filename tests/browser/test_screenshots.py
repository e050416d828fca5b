"""Eight states of the page look as they did when somebody last looked at them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageChops

from tests.browser import screenshots

# Fonts differ by a sub-pixel between machines. A moved, missing or recoloured part changes whole tiles.
TILE, TILE_DIFFERENCE, TILES_THAT_MAY_DIFFER = 16, 0.1, 0.03
# Sections above that were never on the screen have a guessed height, so a scrolled section may stop a pixel higher or lower.
SHIFTS = (-1, 0, 1)


def differing(old: Image.Image, new: Image.Image) -> float:
    """Share of tiles whose colours differ by more than a tenth of the range, in the mean, at the best of SHIFTS."""

    def tiles(shift: int) -> float:
        moved = ImageChops.offset(new.convert("RGB"), 0, shift)
        apart = np.asarray(ImageChops.difference(old.convert("RGB"), moved), float).max(axis=2) / 255
        height, width = (size // TILE * TILE for size in apart.shape)
        means = apart[:height, :width].reshape(height // TILE, TILE, width // TILE, TILE).mean(axis=(1, 3))
        return float((means > TILE_DIFFERENCE).mean())

    return min(tiles(shift) for shift in SHIFTS)


@pytest.fixture(scope="module")
def taken(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image.Image]:
    path = tmp_path_factory.mktemp("screenshots") / "report.html"
    path.write_text(screenshots.page(), encoding="utf-8")
    return dict(screenshots.taken(browser, path))


@pytest.mark.parametrize("name", screenshots.STATES)
def test_a_state_looks_as_it_did(name: str, taken: dict[str, Image.Image], tmp_path: Path) -> None:
    with Image.open(screenshots.FOLDER / f"{name}.png") as old:
        assert old.size == taken[name].size
        assert differing(old, taken[name]) <= TILES_THAT_MAY_DIFFER, "python -m tests.browser.screenshots draws it anew"
        # the comparison itself sees that a fifth of the picture is gone
        erased = old.convert("RGB")
        width, height = erased.size
        erased.paste((128, 128, 128), (0, height * 2 // 5, width, height * 3 // 5))
        assert differing(old, erased) > TILES_THAT_MAY_DIFFER


def test_the_pictures_are_small() -> None:
    pictures = sorted(screenshots.FOLDER.glob("*.png"))
    assert {path.stem for path in pictures} == set(screenshots.STATES)
    assert sum(path.stat().st_size for path in pictures) <= 1_500_000

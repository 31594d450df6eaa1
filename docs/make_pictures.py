"""Draw the pictures of the pages in docs/: `python -m docs.make_pictures`.

tests/project/test_docs.py draws them again, and fails while docs/pictures/ holds something else.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from PIL import Image

from alphafair import figures
from docs.illustrations import PICTURES

FOLDER = Path(__file__).with_name("pictures")
MOST_BYTES = 150_000  # of a picture; a heavier SVG is better off as PNG with 256 colours
DRAWN_BY = f"<!-- drawn by matplotlib {version('matplotlib')} -->\n"  # another version draws other bytes


def make(folder: Path) -> list[Path]:
    """Write every picture to a folder; the same code and versions write the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, draw in PICTURES.items():
        figure = draw()
        path = figures.save(figure, folder / f"{name}.svg")
        with path.open("a", encoding="utf-8") as file:
            file.write(DRAWN_BY)
        if path.stat().st_size > MOST_BYTES:
            path.unlink()
            path = figures.save(figure, folder / f"{name}.png")
            with Image.open(path) as image:
                few_colours = image.convert("RGB").quantize(256)
            few_colours.save(path, optimize=True)
        made.append(path)
    return made


if __name__ == "__main__":
    for path in make(FOLDER):
        print(f"{path.stat().st_size:7,} bytes  {path}")

"""The contact sheet: one picture with all pictures of a folder, small and with their names."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

SHEET = "contact-sheet.png"
ACROSS = 5  # pictures in a row
SIZE, ROOM, FONT = (270, 220), 22, 15  # pixels of a picture at most, around it, and of its name


def is_current(pictures: Sequence[Path], sheet: Path) -> bool:
    """Return whether a sheet shows these pictures, whose identity it carries."""
    return sheet.is_file() and _identity(pictures).encode() in sheet.read_bytes()


def write(pictures: Sequence[Path], sheet: Path) -> None:
    """Write the sheet of some pictures."""
    from PIL import Image, ImageDraw
    from PIL.PngImagePlugin import PngInfo

    small = [_small(path) for path in pictures]
    rows = [small[start : start + ACROSS] for start in range(0, len(small), ACROSS)]
    heights = [max(picture.height for picture in row) + 2 * ROOM for row in rows]
    drawn = Image.new("RGB", (ACROSS * (SIZE[0] + ROOM), sum(heights)), "white")
    for number, path in enumerate(pictures):
        row, place = divmod(number, ACROSS)
        left, top = place * (SIZE[0] + ROOM), sum(heights[:row])
        ImageDraw.Draw(drawn).text((left, top), path.stem, "black", font_size=FONT)
        drawn.paste(small[number], (left, top + ROOM))
    about, temporary = PngInfo(), sheet.with_name(f".{sheet.name}")
    about.add_text("Source", _identity(pictures))
    # 256 colours have a quarter of the bytes.
    few = drawn.quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(temporary, "PNG", pnginfo=about, optimize=True)
    with suppress(FileNotFoundError):  # another build has moved it to its place
        temporary.replace(sheet)


def _small(path: Path) -> "Image.Image":
    """Return a picture in a cell of the sheet; white if the file is damaged."""
    from PIL import Image

    try:
        small = Image.open(path).convert("RGB")
    except (OSError, SyntaxError):  # the build that writes the sheet draws the picture again
        return Image.new("RGB", SIZE, "white")
    small.thumbnail(SIZE)
    return small


def _identity(pictures: Sequence[Path]) -> str:
    content = b"".join(picture.name.encode() + picture.read_bytes() for picture in pictures)
    return hashlib.sha256(content).hexdigest()

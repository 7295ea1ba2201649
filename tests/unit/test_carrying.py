"""What pictures carry in their metadata, as other readers of their formats find it."""

import re
from types import SimpleNamespace

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image
from ptq_dynamics.figures.draw import save
from ptq_dynamics.figures.panels import Picture
from ptq_dynamics.figures.settings import ORIGIN
from ptq_dynamics.provenance.archive import identity_in

SCALE, IDENTITY = "smoke scale", "0123456789abcdef" * 4


def picture(folder, identity=IDENTITY):
    """The picture of a figure, saved as its stage does, by its format."""
    folder.mkdir()
    figure = Figure()
    figure.subplots().plot([1, 2, 4], label="a")
    settings = SimpleNamespace(scale=SCALE)
    context = SimpleNamespace(out=folder, name="a", settings=settings, identity=identity)
    save(Picture(figure, pd.DataFrame(), {}), context)
    return {kind: folder / f"a.{kind}" for kind in ("pdf", "png")}


def test_a_picture_is_known_by_its_identity_whatever_it_is_called(tmp_path):
    found = picture(tmp_path / "one")
    for path in found.values():
        assert identity_in(path.rename(tmp_path / path.suffix[1:])) == (SCALE, IDENTITY)
    with Image.open(tmp_path / "png") as image:
        assert image.text["Source"] == ORIGIN.format(scale=SCALE, identity=IDENTITY)
    Figure().savefig(tmp_path / "other.png")
    assert identity_in(tmp_path / "other.png") is None


def test_equal_pictures_have_equal_bytes_and_neither_time_nor_place(tmp_path):
    one, other = (picture(tmp_path / name) for name in "ab")
    third = picture(tmp_path / "c", IDENTITY[::-1])
    for kind, path in one.items():
        content = path.read_bytes()
        assert content == other[kind].read_bytes() != third[kind].read_bytes()
        assert not re.search(rb"Date|\d{4}-\d\d-\d\d|" + str(tmp_path).encode(), content)

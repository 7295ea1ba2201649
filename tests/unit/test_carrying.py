"""What pictures carry in their metadata, as other readers of their formats find it."""

import re

import pytest
from matplotlib.figure import Figure
from PIL import Image
from ptq_dynamics.figures import carrying
from ptq_dynamics.figures.settings import ORIGIN

SCALE, IDENTITY = "smoke scale", "0123456789abcdef" * 4
ORIGIN_OF_IT = ORIGIN.format(scale=SCALE, identity=IDENTITY)


def picture(path, identity=IDENTITY):
    figure = Figure()
    figure.subplots().plot([1, 2, 4], label="a")
    carrying.save(figure, path, SCALE, identity)
    return path


@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_a_picture_is_known_by_its_identity_whatever_it_is_called(tmp_path, kind):
    path = picture(tmp_path / f"a.{kind}")
    assert carrying.identity_in(path) == (SCALE, IDENTITY)
    assert carrying.identity_in(path.rename(tmp_path / "renamed")) == (SCALE, IDENTITY)
    other = tmp_path / f"b.{kind}"
    Figure().savefig(other)
    assert carrying.identity_in(other) is None


def test_other_readers_find_it(tmp_path):
    with Image.open(picture(tmp_path / "a.png")) as image:
        assert image.text["Source"] == ORIGIN_OF_IT
    content = picture(tmp_path / "a.pdf").read_bytes()
    info = int(re.search(rb"/Info (\d+) 0 R", content)[1])
    (held,) = re.findall(rb"\n%d 0 obj\n(.*?)\nendobj" % info, content, flags=re.S)
    assert re.search(rb"/Keywords \((.*?)\)", held, flags=re.S)[1].decode() == ORIGIN_OF_IT


@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_equal_pictures_have_equal_bytes_and_neither_time_nor_place(tmp_path, kind):
    one, other = (picture(tmp_path / f"{name}.{kind}").read_bytes() for name in ("a", "b"))
    assert one == other
    assert not re.search(rb"Date|\d{4}-\d\d-\d\d|" + str(tmp_path).encode(), one)
    third = picture(tmp_path / f"c.{kind}", IDENTITY[::-1]).read_bytes()
    assert len(third) == len(one) and third != one

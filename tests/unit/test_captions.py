"""The page of titles and captions beside the figures, and the one that is committed."""

import pytest
from PIL import Image
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.captions import has_page, page, write_page
from support import ROOT, plan

REFERENCE = ROOT / "figures/reference/laptop"
DRAWN = ("fig06", "pca")


def folder_of_figures(path, color="white"):
    path.mkdir(parents=True, exist_ok=True)
    for name in DRAWN:
        (path / f"{name}.record.json").touch()
        Image.new("RGB", (600, 400), color).save(path / f"{name}.png")
    return path


def test_the_page_shows_what_is_drawn_with_its_words(tmp_path):
    figures = plan("laptop").site.config.figures
    text = page(figures, folder_of_figures(tmp_path / "figures"))
    for name, figure in figures.items():
        for words in (figure.title, f"({name}.png)", f"({name}.csv)", figure.caption):
            assert (words in text) == (name in DRAWN), (name, words)
    assert text.index("fig06") < text.index("pca"), "the order of the configuration"
    made = Manifest(tmp_path / "figures/pca.manifest.json", {}, {"finding": "It is so."})
    made.path.write_text(made.text())
    text = page(figures, tmp_path / "figures")
    assert f"{figures['pca'].caption} It is so. [Table" in text and text.count("It is so.") == 1


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_picture_does_not_prevent_its_repair(damage, tmp_path):
    """A build writes the page before it draws what is damaged."""
    figures, folder = plan("laptop").site.config.figures, folder_of_figures(tmp_path / "figures")
    write_page(figures, folder)
    content = (path := folder / "pca.png").read_bytes()
    path.unlink()
    if damage == "changed":
        path.write_bytes(content[:60] + bytes(len(content) - 60))
    assert not has_page(figures, folder)
    write_page(figures, folder)
    assert has_page(figures, folder)
    path.write_bytes(content)
    assert not has_page(figures, folder)


def test_the_page_of_the_reference_is_up_to_date():
    figures = plan("laptop").site.config.figures
    text = page(figures, REFERENCE)
    assert text.count("\n![") == len(list(REFERENCE.glob("*.png"))), "a picture of no figure"
    assert has_page(figures, REFERENCE), "run make release SCALE=laptop"

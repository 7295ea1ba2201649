"""The page of titles and captions beside the figures, and the one that is committed."""

from itertools import product

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.captions import has_page, page
from support import ROOT, plan

REFERENCE = ROOT / "figures/reference/laptop"
DRAWN = ("fig06", "pca")


def test_the_page_shows_what_is_drawn_with_its_words(tmp_path):
    figures = plan("laptop").site.config.figures
    for name, kind in product(DRAWN, ("png", "record.json")):
        (tmp_path / f"{name}.{kind}").touch()
    text = page(figures, tmp_path)
    for name, figure in figures.items():
        for words in (figure.title, f"({name}.png)", f"({name}.csv)", figure.caption):
            assert (words in text) == (name in DRAWN), (name, words)
    assert text.index("fig06") < text.index("pca"), "the order of the configuration"
    made = Manifest(tmp_path / "pca.manifest.json", {}, {"finding": "It is so."})
    made.path.write_text(made.text())
    text = page(figures, tmp_path)
    assert f"{figures['pca'].caption} It is so. [Table" in text and text.count("It is so.") == 1


def test_the_page_of_the_reference_is_up_to_date():
    figures = plan("laptop").site.config.figures
    text = page(figures, REFERENCE)
    assert text.count("\n![") == len(list(REFERENCE.glob("*.png"))), "a picture of no figure"
    assert has_page(figures, REFERENCE), "run make release SCALE=laptop"

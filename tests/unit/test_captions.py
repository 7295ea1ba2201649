"""The page of titles and captions beside the figures, and the one that is committed."""

import re

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures.captions import page
from support import ROOT, plan

REFERENCE = ROOT / "figures/reference/laptop"
DRAWN = ("fig06", "pca")


def folder_of_figures(path):
    path.mkdir(parents=True)
    for name in DRAWN:
        (path / f"{name}.record.json").touch()
    return path


def test_the_page_shows_what_is_drawn_with_its_words(tmp_path):
    figures = plan("laptop").site.config.figures
    text = page(figures, folder_of_figures(tmp_path / "figures"))
    for name, figure in figures.items():
        for words in (figure.title, f"({name}.png)", f"({name}.csv)", figure.caption):
            assert (words in text) == (name in DRAWN), (name, words)
    assert text.index("fig06") < text.index("pca"), "the order of the configuration"


def test_the_page_begins_with_small_pictures_that_link_to_the_large_ones(tmp_path):
    figures = plan("laptop").site.config.figures
    text = page(figures, folder_of_figures(tmp_path / "figures"))
    links = re.findall(r'<img src="(.+?)\.png".*?\(#(.+?)\)', text[: text.index("\n## ")])
    assert [name for name, _ in links] == [*DRAWN]
    assert links[1][1] == "pca-" + "-".join(re.findall(r"\w+", figures["pca"].title.lower()))


def test_what_the_numbers_of_a_figure_say_stands_below_its_caption(tmp_path):
    figures, folder = plan("laptop").site.config.figures, folder_of_figures(tmp_path / "figures")
    made = Manifest(folder / "pca.manifest.json", {}, {"finding": "It is so."})
    made.path.write_text(made.text())
    text = page(figures, folder)
    assert f"{figures['pca'].caption} It is so. [Table" in text and text.count("It is so.") == 1


def test_the_page_of_the_reference_is_up_to_date():
    text = page(plan("laptop").site.config.figures, REFERENCE)
    assert text.count("\n![") == len(list(REFERENCE.glob("*.png"))), "a picture of no figure"
    written = (REFERENCE / "README.md").read_text()
    assert written == text, "run make release SCALE=laptop"

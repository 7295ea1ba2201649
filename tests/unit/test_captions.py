"""The page of titles and captions beside the figures, and the one that is committed."""

import shutil

from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.graph.captions import page, write_page
from support import ROOT, edit_yaml, plan, python

REFERENCE = ROOT / "figures/reference/laptop"
DRAWN = ("fig06", "pca")


def folder_of_figures(path):
    path.mkdir(parents=True)
    for name in DRAWN:
        (path / f"{name}.png").touch()
    return path


def test_the_page_shows_what_is_drawn_with_its_words(tmp_path):
    figures = plan("laptop").site.config.figures
    text = page(figures, folder_of_figures(tmp_path / "figures"))
    for name, figure in figures.items():
        for words in (figure.title, f"({name}.png)", f"({name}.csv)", figure.caption):
            assert (words in text) == (name in DRAWN), (name, words)
    assert text.index("fig06") < text.index("pca"), "the order of the configuration"


def test_what_the_numbers_of_a_figure_say_stands_below_its_caption(tmp_path):
    figures, folder = plan("laptop").site.config.figures, folder_of_figures(tmp_path / "figures")
    made = Manifest(folder / "pca.manifest.json", {}, {"finding": "It is so."})
    made.path.write_text(made.text())
    text = page(figures, folder)
    assert f"{figures['pca'].caption} It is so. [Table" in text and text.count("It is so.") == 1
    made.path.write_text("[1]")
    assert "It is so." not in page(figures, folder)


def test_the_page_of_the_reference_is_up_to_date():
    text = page(plan("laptop").site.config.figures, REFERENCE)
    assert text.count("\n![") == len(list(REFERENCE.glob("*.png"))), "a picture of no figure"
    written = (REFERENCE / "README.md").read_text()
    assert written == text, "run ptq-dynamics captions --folder figures/reference/laptop"


def test_a_page_that_is_as_it_should_be_is_left_alone(tmp_path):
    figures, folder = plan("laptop").site.config.figures, folder_of_figures(tmp_path / "figures")
    write_page(figures, folder)
    before = (folder / "README.md").stat()
    write_page(figures, folder)
    after = (folder / "README.md").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_the_command_writes_the_page_anew_when_a_caption_is_edited(tmp_path):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    arguments = ["-m", "ptq_dynamics.cli", "captions", "--scale", "smoke"]
    done = python(arguments, tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: figures/smoke has no figures yet; make figures draws them\n"
    path = folder_of_figures(tmp_path / "figures/smoke") / "README.md"
    assert python(arguments, tmp_path).returncode == 0
    before = path.read_text()
    figures = tmp_path / "config/figures.yaml"
    edit_yaml(figures, lambda found: found["pca"].update(caption="Quite other words."))
    assert python(arguments, tmp_path).returncode == 0
    assert "Quite other words." in path.read_text() != before

"""The README and docs/: what is written from results is as these are, and links lead somewhere."""

import json
import re
import subprocess
import tomllib
from contextlib import chdir

import pytest
import yaml
from ptq_dynamics import __version__, cli
from ptq_dynamics.cli.outcomes import released_scales
from support import ROOT

PACKAGE = ROOT / "workflow/ptq_dynamics"
PAGES = ["README.md", "ARTIFACT.md"]
PAGES += [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]


def anchors(text):
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = path.parent / place if place else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_the_readme_links_every_page_and_what_is_released():
    with chdir(ROOT):
        named = [f"figures/reference/{scale}/README.md" for scale in released_scales()]
    text = (ROOT / "README.md").read_text()
    assert [page for page in [*PAGES[1:], *named] if f"({page})" not in text] == []


def test_verbs_that_pages_name_are_there():
    """And targets of the Makefile."""
    pages = "".join((ROOT / page).read_text() for page in PAGES)
    pages += (ROOT / "config/README.md").read_text()
    pages += "".join(path.read_text() for path in (ROOT / "config").rglob("*.yaml"))
    named = set(re.findall(r"\bptq-dynamics ((?:dev )?[a-z]+)", pages))
    verbs = {verb.__name__ for verb in cli.VERBS}
    verbs |= {f"dev {verb.__name__}" for verb in cli.MAINTAINERS}
    assert "dev accept" in named and named <= verbs, named - verbs
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", pages, re.M)) <= targets


def test_all_that_name_a_version_name_the_same():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == version and cited["date-released"].year >= 2026
    assert json.loads((ROOT / ".zenodo.json").read_text())["version"] == version
    assert __version__ == version
    assert f"\n## {version} (tag v{version}" in (ROOT / "CHANGELOG.md").read_text()


def test_walks_through_the_code_name_what_is_there():
    """By file in the tables of docs/how-it-works.md, and in comments, as plan/site.py:Site."""
    listed = ["git", "ls-files", "Makefile", "config", "workflow"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = [path.read_text() for path in map(ROOT.joinpath, files.split()) if path.is_file()]
    named = re.findall(r"\b([a-z_/]+\.py):([A-Za-z_.]*\w)", "".join(texts))
    page = (ROOT / "docs/how-it-works.md").read_text()
    for path, names in re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", page, re.M):
        named += [(path, name) for name in re.findall(r"`([\w.]+)`", names)]
    assert len(named) > 30
    for path, name in named:
        text = (PACKAGE / path).read_text()
        for part in name.split("."):
            assert re.search(rf"^ *(def|class) {part}\b|^{part}\b.* = ", text, re.M), (path, name)

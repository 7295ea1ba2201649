"""The README and docs/: what is written from results is as these are, and links lead somewhere."""

import re
from contextlib import chdir

import pytest
from ptq_dynamics.cli import readme
from support import ROOT, plan

PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


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


def test_every_page_is_linked_from_the_readme():
    text = (ROOT / "README.md").read_text()
    assert [page for page in PAGES[1:] if f"({page})" not in text] == []


def test_the_readme_says_what_is_released():
    with chdir(ROOT):
        said = readme.block(plan("laptop"))
    text = (ROOT / "README.md").read_text()
    assert readme.BEGIN + said + readme.END in text, "run ptq-dynamics readme --scale laptop"


def test_verbs_that_pages_name_are_there():
    """And targets of the Makefile."""
    pages = "".join((ROOT / page).read_text() for page in PAGES)
    code = (ROOT / "workflow/ptq_dynamics/cli/verbs.py").read_text()
    verbs = set(re.findall(r'\badd\(\s*"([a-z]+)"', code))
    assert set(re.findall(r"`?(?:\.venv/bin/)ptq-dynamics ([a-z]+)", pages)) <= verbs
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", pages, re.M)) <= targets

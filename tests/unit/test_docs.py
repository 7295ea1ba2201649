"""The README and docs/: what is written from results is as these are, and links lead somewhere."""

import json
import re
import subprocess
import tomllib
from contextlib import chdir

import pytest
import yaml
from ptq_dynamics import __version__
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.cli import readme
from ptq_dynamics.cli.claims import read
from support import ROOT, plan

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


def test_every_page_is_linked_from_the_readme():
    text = (ROOT / "README.md").read_text()
    assert [page for page in PAGES[1:] if f"({page})" not in text] == []


def test_the_readme_says_what_is_released():
    with chdir(ROOT):
        said = readme.block(plan("laptop"))
    text = (ROOT / "README.md").read_text()
    assert readme.BEGIN + said + readme.END in text, "run ptq-dynamics readme --scale laptop"


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", '{"claims": []}'])
def test_damaged_verdicts_are_told_in_one_line(tmp_path, text):
    path = tmp_path / CLAIMS
    path.write_text(text)
    with pytest.raises(Problem, match=r"claims\.json is damaged"):
        read(path)


def test_the_readme_says_how_many_inequalities_rest_on_one_seed():
    several, alone, open_ = {"seeds": [1, 2, 3]}, {"seeds": [1]}, {}
    judged = {"claims": [{"inequalities": [alone, several]}, {"inequalities": [alone, open_]}]}
    said = readme._seeds(judged)
    assert said == "Of its 3 measured inequalities, 2 rest on 1 seed, 1 on 3 seeds."


def test_the_readme_shows_no_picture_that_is_not_there_and_keeps_its_columns(tmp_path):
    kept = tmp_path / "results/reference/laptop"
    kept.mkdir(parents=True)
    said = {"number": 1, "says": "|ρ| < 1", "verdict": "reproduced", "about": [], "counts": {}}
    (kept / CLAIMS).write_text(json.dumps({"scale": "laptop scale", "claims": [said]}))
    pictures = tmp_path / "figures/reference/laptop"
    pictures.mkdir(parents=True)
    found = plan("laptop")
    with chdir(tmp_path):
        for name in readme.SHOWN:
            with pytest.raises(Problem, match=f"{name}.png is missing"):
                readme.block(found)
            (pictures / f"{name}.png").touch()
        line = readme.block(found).splitlines()[-1]
    assert line == "| 1 | ∣ρ∣ &lt; 1 | reproduced |  |"


def test_verbs_that_pages_name_are_there():
    """And targets of the Makefile."""
    pages = "".join((ROOT / page).read_text() for page in PAGES)
    code = (ROOT / "workflow/ptq_dynamics/cli/verbs.py").read_text()
    verbs = set(re.findall(r'\badd\(\s*"([a-z]+)"', code))
    assert set(re.findall(r"`?(?:\.venv/bin/)ptq-dynamics ([a-z]+)", pages)) <= verbs
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", pages, re.M)) <= targets


def test_all_that_name_a_version_name_the_same():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert json.loads((ROOT / ".zenodo.json").read_text())["version"] == version
    assert __version__ == version
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_definitions_for_a_forge_run_what_there_is():
    """They have not been run; what they call is there."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    paths = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert paths
    for path in paths:
        text = path.read_text()
        jobs = yaml.safe_load(text)["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"]]
        said = "\n".join(step["run"] for step in steps if "run" in step)
        assert "Not run so far" in text
        assert set(re.findall(r"\bmake ([a-z-]+)", said)) <= targets
        assert all((ROOT / name).exists() for name in re.findall(r"bash (\S+)", said))


def test_all_is_made_by_one_start_of_snakemake_and_reported_by_another():
    words = ["make", "-n", "all", "SCALE=smoke", "PROFILE="]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    starts = re.findall(r"cli\.snakemake .*?-- ([a-z ]+)", told.replace("\\\n", ""))
    assert [each.strip() for each in starts] == ["everything", "figures claims tables"]

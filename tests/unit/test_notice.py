"""NOTICE lists what is used, with the licences that packages state, and so cannot fall behind."""

import re
from importlib import metadata

from support import ROOT

# A section: a heading, its words, and a line for each thing, `NAME: LICENCE`.
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", (ROOT / "NOTICE").read_text(), re.M))
LINES = {title: re.findall(r"^- (\S+): (.+)$", text, re.M) for title, text in SECTIONS.items()}
PACKAGES = dict(LINES["Packages"])
# By name, whether on some systems or versions of Python alone.
PINNED = dict(re.findall(r"^([\w.-]+)==\S+( ;)?", (ROOT / "envs/main.txt").read_text(), re.M))


def plain(name):
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


LISTED = {plain(name): licence for name, licence in PACKAGES.items()}


def stated(package):
    """The licence by a package's metadata, in a line; or by the beginning of its licence file."""
    about = metadata.metadata(package)
    for text in (about.get("License-Expression"), about.get("License")):
        if text and "\n" not in text.strip():
            return text.strip()
    found = [each for each in about.get_all("Classifier", []) if each.startswith("License :: ")]
    if found:
        return ", ".join(each.rpartition(" :: ")[2] for each in found)
    files = [
        file for file in metadata.files(package) if re.search("dist-info.*LICEN[CS]E", str(file))
    ]
    return files[0].read_text().partition("\n")[0].strip()


def test_everything_that_is_locked_is_listed_with_the_licence_that_it_states():
    installed = {plain(each.name) for each in metadata.distributions()}
    here = [name for name, marked in PINNED.items() if name in installed or not marked]
    expected = {name: stated(name) for name in here}
    wrong = [f"- {name}: {found}" for name, found in expected.items() if LISTED.get(name) != found]
    assert not wrong, "NOTICE must have\n" + "\n".join(wrong)
    assert set(LISTED) == set(PINNED), "others as well"
    assert list(PACKAGES) == sorted(PACKAGES, key=str.casefold), "in another order"
    assert all(PACKAGES.values())

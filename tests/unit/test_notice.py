"""NOTICE lists what is used, with the licences that packages state, and so cannot fall behind."""

import re
import tomllib
from importlib import metadata

import yaml
from support import ROOT, leaves

# A section: a heading, its words, and a line for each thing, `NAME: LICENCE`.
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", (ROOT / "NOTICE").read_text(), re.M))
LINES = {title: re.findall(r"^- (\S+): (.+)$", text, re.M) for title, text in SECTIONS.items()}
PACKAGES = dict(LINES["Packages"])
# By name, whether on some systems or versions of Python alone.
PINNED = dict(re.findall(r"^([\w.-]+)==\S+( ;)?", (ROOT / "envs/main.txt").read_text(), re.M))


def plain(name):
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


LISTED = {plain(name): licence for name, licence in PACKAGES.items()}
TOOLS = [plain(name) for name, _ in LINES["Tools in environments of their own"]]


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


CONFIGURED = [
    (path.stem, next(str(key) for key in at[::-1] if isinstance(key, str)), value)
    for path in sorted((ROOT / "config").rglob("*.yaml"))
    for at, value in leaves(yaml.safe_load(path.read_text()))
]


def test_everything_that_corpora_read_is_listed():
    read = {(file, value) for file, key, value in CONFIGURED if key == "packages"}
    assert {"smoke", "laptop"} <= {file for file, _ in read}
    assert not [each for each in read if plain(each[1]) not in LISTED]


def test_environments_of_tools_are_listed_whole():
    tools = [path for path in (ROOT / "envs").glob("*.txt") if path.stem not in {"main", "cuda"}]
    locked = {
        plain(name)
        for path in tools
        for name in re.findall(r"^([\w.-]+)==", path.read_text(), re.M)
    }
    assert {*TOOLS} == locked - set(LISTED)
    assert sorted(TOOLS, key=lambda name: name.replace("-", "")) == TOOLS


# Keys under which configuration names a repository of the hub.
REPOSITORIES = {"repository", "tokenizer", "path"}


def test_every_repository_of_the_hub_that_configuration_names_is_listed():
    named = {value for _, key, value in CONFIGURED if key in REPOSITORIES}
    named = {value for value in named if re.fullmatch(r"[\w.-]+/[\w.-]+", str(value))}
    listed = {name for title in ("Models", "Tokenizers", "Data sets") for name, _ in LINES[title]}
    assert len(named) >= 4 and named <= listed, named - listed
    # Tasks of the harness name their data sets themselves.
    models = {name for name, _ in LINES["Models"]}
    assert models <= named, f"nothing reads {models - named}"


def test_all_that_name_our_licence_name_the_same():
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert licence == yaml.safe_load((ROOT / "CITATION.cff").read_text())["license"]
    assert (ROOT / "LICENSE").read_text().startswith(f"{licence} License")

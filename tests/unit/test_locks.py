"""Locks of environments: digests of all files, the same versions everywhere, and no other file."""

import hashlib
import importlib.util
import os
import re
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from subprocess import run

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT

pytestmark = pytest.mark.slow

ENVS = ROOT / "envs"
LOCKS = sorted(ENVS.glob("*.txt"))
DIGEST = r" \\\n    --hash=sha256:[0-9a-f]{64}"


def installer():
    spec = importlib.util.spec_from_file_location("install", ENVS / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_is_distributions_of_one_version_with_digests(lock):
    text = re.sub(r"^#.*\n", "", lock.read_text(), flags=re.M)
    assert re.fullmatch(rf"(?:[a-z0-9-]+==[\w.]+(?: ; [^\\\n]+)?(?:{DIGEST})+\n)+", text)
    names = re.findall(r"^([a-z0-9-]+)==", text, re.M)
    assert names and len(set(names)) == len(names)
    assert list(installer().entries_of(lock)) == names


def test_everything_that_the_project_asks_for_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for lock, wanted in (("main.txt", asked + optional["test"]), ("slurm.txt", optional["slurm"])):
        locked = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ENVS / lock).read_text(), re.M))
        for each in map(Requirement, wanted):
            assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


def wheel(folder: Path, name: str, version: str, code: str = "") -> str:
    """Make the smallest of wheels; its digest."""
    folder.mkdir(exist_ok=True, parents=True)
    path, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{about}/RECORD": listed}.items():
            archive.writestr(file, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def install(tmp_path):
    """Install a distribution with some digests into an environment of its own, from the folders
    `index` and `links` alone; what pip says, and what is there then."""
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    # Bringing its own pip would take seconds; importing it here would change how setuptools loads.
    (packages / "pip").symlink_to(metadata.distribution("pip").locate_file("pip"))
    variables = {name: value for name, value in os.environ.items() if name[:4] != "PIP_"} | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": (tmp_path / "index").as_uri(),
        "PIP_FIND_LINKS": str(tmp_path / "links"),
    }
    (tmp_path / "index").mkdir()

    def start(requirement, *digests, **others):
        lines = [requirement, *(f"    --hash=sha256:{digest}" for digest in digests)]
        lock = tmp_path / "tiny.txt"
        lock.write_text(" \\\n".join(lines) + "\n")
        command = [tmp_path / "venv/bin/python", "-I", ENVS / "install.py", lock]
        known = {name: value for name, value in (variables | others).items() if value}
        done = run(command, env=known, capture_output=True, text=True, check=False)
        lines = done.stderr.splitlines(keepends=True)
        said = "".join(line for line in lines if not line.startswith("WARNING"))
        assert bool(done.returncode) == bool(said), done.stderr
        return said, [path.stem for path in packages.glob("*.dist-info")]

    return start


def test_a_file_with_another_digest_is_refused(install, tmp_path):
    locked = wheel(tmp_path / "links", "tiny", "1.0", "said = 1\n")
    changed = wheel(tmp_path / "links", "tiny", "1.0", "said = 2\n")
    said, found = install("tiny==1.0", locked)
    assert not found and "DO NOT MATCH THE HASHES" in said
    said, found = install("tiny==1.0")
    assert not found and "Hashes are required" in said
    assert install("tiny==1.0", locked, changed)[1] == ["tiny-1.0"]


def test_conda_installs_the_versions_of_the_lock():
    conda = yaml.safe_load((ENVS / "main.yaml").read_text())["dependencies"]
    pinned = re.findall(r"^[\w.-]+==[^\\\n]+", (ENVS / "main.txt").read_text(), re.M)
    assert conda[-1]["pip"] == [each.strip() for each in pinned]


def test_settings_that_are_not_of_the_network_change_nothing(install, tmp_path):
    digest = wheel(tmp_path / "links", "tiny", "1.0")
    (tmp_path / "constraint").write_text("tiny==2.0\n")
    settings = {
        **{name: str(tmp_path / name) for name in ("target", "prefix", "root", "report", "log")},
        "constraint": str(tmp_path / "constraint"),
        **dict.fromkeys(("user", "dry-run", "require-virtualenv", "ignore-installed"), "true"),
        **{"no-binary": ":all:", "quiet": "3", "python-version": "3.1"},
    }
    network = {"index-url": (tmp_path / "index").as_uri(), "find-links": tmp_path / "links"}
    lines = ["[global]", *(f"{name} = {each}" for name, each in network.items())]
    lines += [f"{name} = {each}" for name, each in settings.items()]
    lines.insert(-4, "[install]")
    file = tmp_path / "pip.conf"
    file.write_text("\n".join(lines))
    variables = {"PIP_CONFIG_FILE": str(file), "PIP_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    assert install("tiny==1.0", digest, **variables) == ("", ["tiny-1.0"])
    assert not {"target", "prefix", "root", "report"} & {path.name for path in tmp_path.iterdir()}


def test_packages_elsewhere_on_the_path_are_not_those_of_the_environment(install, tmp_path):
    digest = wheel(tmp_path / "links", "tiny", "1.0")
    (archive,) = (tmp_path / "links").iterdir()
    zipfile.ZipFile(archive).extractall(tmp_path / "other")
    variables = {"PYTHONPATH": str(tmp_path / "other"), "PYTHONHOME": str(tmp_path)}
    assert install("tiny==1.0", digest, **variables) == ("", ["tiny-1.0"])


def test_what_cannot_be_imported_is_not_installed(install, tmp_path):
    said, _ = install("tiny==1.0", wheel(tmp_path / "links", "tiny", "1.0", "import absent\n"))
    assert "tiny cannot be imported: ModuleNotFoundError: No module named 'absent'" in said

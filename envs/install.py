"""Install a lock of this folder, by the python of its environment: install.py LOCK [--project DIR].

No file is taken that has none of the lock's digests, and nothing that the lock does not name. A
project comes last, as it lies there; then what is built from source is built by the lock's
setuptools, and else by what pip fetches for that. It needs nothing but pip.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions, requires
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

# Variables of Python, such as PYTHONPATH, do not count.
PYTHON = [sys.executable, "-I"]
PIP = [*PYTHON, "-m", "pip"]
INSTALL = [*PIP, "install", "--disable-pip-version-check", "--no-compile", "--no-deps"]
LOCKED = [*INSTALL, "--require-hashes", "-r"]
# Read from the input: an entry of a lock alone.
ENTRY = [*LOCKED, "/dev/stdin"]
CUDA, NEWER = (Path(__file__).with_name(name) for name in ("cuda.txt", "pip.txt"))
# The only settings of pip that count. Others may install elsewhere, something else, or nothing.
NETWORK = [
    *("index-url", "extra-index-url", "no-index", "find-links", "trusted-host", "keyring-provider"),
    *("proxy", "cert", "client-cert", "timeout", "default-timeout", "retries"),
    *("cache-dir", "no-cache-dir"),
]
# The feature of using the system's certificates, which early versions of pip lack.
TRUST = "truststore"
IMPORT = """
import importlib, sys
sys.path[:0] = filter(None, sys.argv[1:2])
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        sys.exit(f"{name} cannot be imported: {type(error).__name__}: {error}")
"""


def main() -> None:
    """Install it, and see that nothing is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("lock", type=Path)
    parser.add_argument("--project", type=Path, metavar="DIR", help="this, too, as it lies there")
    parser.add_argument("--target", default="", metavar="DIR", help="into a folder of its own")
    parser.add_argument("--list", action="store_true", help="print what is installed, and no more")
    given = parser.parse_args()
    isolate()
    if given.list:
        sys.exit(subprocess.run([*PIP, "freeze"]).returncode)
    entries = entries_of(given.lock)
    if given.target:
        run([*LOCKED, str(given.lock), "--target", given.target], total=len(entries))
    else:
        install(given.lock, entries, given.project)
    check(given.lock, entries, given.project, given.target)


def isolate() -> None:
    """Drop the settings of Python and pip from the environment, and pip's files with settings;
    those of the network, of all places, stay as variables."""
    # `user`, `global` and `site` would choose one file, and the others what is printed.
    off = dict.fromkeys(map("PIP_{}".format, ("QUIET", "VERBOSE", "USER", "GLOBAL", "SITE")), "0")
    how = {"env": os.environ | off, "stdout": subprocess.PIPE, "text": True}
    done = subprocess.run([*PIP, "config", "list"], **how)
    if done.returncode:
        sys.exit("the settings of pip cannot be read; correct them: pip config debug lists files")
    settings = dict[str, dict[str, str]]()
    for section, name, value in re.findall(r"^(.+?)\.([\w-]+)=(.+)$", done.stdout, re.M):
        settings.setdefault(section, {})[name] = ast.literal_eval(value)
    for name in [name for name in os.environ if name.startswith(("PIP_", "PYTHON"))]:
        del os.environ[name]
    os.environ["PIP_CONFIG_FILE"] = os.devnull  # no file is read
    for section in ("global", "install", ":env:"):  # the last one wins
        for name, value in settings.get(section, {}).items():
            is_trust = name == "use-feature" and TRUST in value.split()
            if is_trust and find_spec(f"pip._vendor.{TRUST}"):
                os.environ["PIP_USE_FEATURE"] = TRUST
            if name in NETWORK and value:
                os.environ[f"PIP_{name.upper().replace('-', '_')}"] = value


def install(lock: Path, entries: Mapping[str, str], project: Path | None) -> None:
    """Install a lock, and a project, into this environment."""
    none = subprocess.DEVNULL
    if "torch" in entries:
        # If this pip cannot be downloaded, the one that is there does the same, but takes longer.
        subprocess.run([*LOCKED, str(NEWER), "-q"], stderr=none)
        # A folder of links tells no digests, so pip would prefer the index's build to one for this
        # machine that lies there. Where none does, this fails.
        command = [*ENTRY, "-q", "--no-index"]
        subprocess.run(command, input=entries["torch"], text=True, stderr=none)
    building = []
    if project is not None:
        run(ENTRY, entries["setuptools"])
        building = ["--no-build-isolation"]
    run([*LOCKED, str(lock), *building], total=len(entries))
    if "torch" in entries and is_for_a_gpu():
        run([*LOCKED, str(CUDA)], total=len(entries_of(CUDA)))
    if project is not None and not is_of_another(project):
        run([*INSTALL, *building, "-e", str(project)])


def entries_of(lock: Path) -> dict[str, str]:
    """The lines of each distribution that a lock has, by name."""
    text = lock.read_text(encoding="utf-8")
    return {each[1]: each[0] for each in re.finditer(r"^([\w-]+)==.*\n(?: .*\n)*", text, re.M)}


def is_for_a_gpu() -> bool:
    """Whether the torch that is installed asks here for something of cuda.txt."""
    asked = [Requirement(line) for line in requires("torch") or ()]
    locked = entries_of(CUDA)
    return any(each.name in locked and applies(each) for each in asked)


def applies(requirement: Requirement) -> bool:
    """Whether this machine and this Python need it."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def metadata_of(project: Path) -> dict:
    """Name and dependencies of a project."""
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def installed(target: str = "") -> dict[str, Distribution]:
    """The distributions in this environment, or in a folder, by name."""
    places = [target] if target else map(sysconfig.get_path, ("purelib", "platlib"))
    return {
        canonicalize_name(each.metadata["Name"]): each for each in distributions(path=[*places])
    }


def modules_of(known: Distribution) -> set[str]:
    """The modules of a distribution that have its name."""
    tops = {file.parts[0].removesuffix(".py") for file in known.files or ()}
    return {top for top in tops if letters(top) == letters(known.metadata["Name"])}


def letters(name: str) -> str:
    """A name as it is in spite of how it is written."""
    return re.sub("[-_.]", "", name).lower()


def is_of_another(project: Path) -> bool:
    """Whether another checkout of the project shares this environment, and it runs that code."""
    known = installed().get(canonicalize_name(metadata_of(project)["name"]))
    origin = known and known.read_text("direct_url.json")
    if not origin:
        return False
    place = Path(url2pathname(urlsplit(json.loads(origin)["url"]).path))
    return (place / "pyproject.toml").is_file() and not place.samefile(project)


def check(lock: Path, entries: Mapping[str, str], project: Path | None, target: str) -> None:
    """See that all that the lock names lies in its place, and has what it needs, and that what is
    wanted of it can be imported; what else someone installed is theirs."""
    known, wrong = installed(target), list[str]()
    locked = [Requirement(text.partition("\n")[0].rstrip(" \\")) for text in entries.values()]
    for each in filter(applies, locked):
        there = known.get(each.name)
        if there is None or not each.specifier.contains(there.version, prereleases=True):
            wrong.append(f"{each} is not in {target or sys.prefix}")
    if not target:
        said = subprocess.run([*PIP, "check"], stdout=subprocess.PIPE, text=True).stdout
        lines = said.splitlines()
        wrong += [line for line in lines if canonicalize_name(line.split()[0]) in entries]
    if project is None:
        # The name of a lock is that of its tool.
        wanted = {name for name in entries if letters(name).endswith(letters(lock.stem))}
    else:
        wanted = {
            canonicalize_name(Requirement(line).name)
            for line in metadata_of(project)["dependencies"]
        }
    modules = {name for each in wanted & known.keys() for name in modules_of(known[each])}
    if project is not None:
        modules.add(metadata_of(project)["name"].replace("-", "_"))
    command = [*PYTHON, "-c", IMPORT, target, *sorted(modules)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        wrong += done.stderr.splitlines()[-1:]
    if wrong:
        sys.exit("\n".join([*wrong, f"remove {target or sys.prefix} and run the command again"]))


def run(command: list[str], text: str = "", total: int = 1) -> None:
    """Run pip to its end, and print how far it is; where that fails, so does this."""
    pip = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with pip, pip.stdin, pip.stdout:
        pip.stdin.write(text)
        pip.stdin.close()
        done = 0
        for line in pip.stdout:
            if line.startswith(("Collecting", "Requirement already")):
                done += 1
                if done % 10 == 0:
                    print(f"{done} of {total} packages are downloaded or present", flush=True)
            elif line.startswith("Installing collected"):
                print(f"unpacking {len(line.split(',')):,} packages", flush=True)
    if pip.returncode:
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Install a lock of this folder, by the python of its environment: install.py LOCK [PROJECT].

No file is taken that has none of the lock's digests, and nothing that the lock does not name. A
project comes last, as it lies there; then what is built from source is built by the lock's
setuptools, and else by what pip fetches for that. It needs nothing but pip.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import requires
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

PIP = [sys.executable, "-m", "pip"]
INSTALL = [*PIP, "install", "--disable-pip-version-check", "--no-compile", "--no-deps"]
LOCKED = [*INSTALL, "--require-hashes", "-r"]
# Read from the input: an entry of a lock alone.
ENTRY = [*LOCKED, "/dev/stdin"]
CUDA = Path(__file__).with_name("cuda.txt")


def main(lock: str, project: str | None = None) -> None:
    """Install it, and see that nothing is missing."""
    entries = entries_of(Path(lock))
    if "torch" in entries:
        # A folder of links tells no digests, so pip would prefer the index's build to one for this
        # machine that lies there. Where none does, this fails.
        command, none = [*ENTRY, "-q", "--no-index"], subprocess.DEVNULL
        subprocess.run(command, input=entries["torch"], text=True, stderr=none)
    building = []
    if project is not None:
        run(ENTRY, entries["setuptools"])
        building = ["--no-build-isolation"]
    run([*LOCKED, lock, *building], total=len(entries))
    if "torch" in entries and is_for_a_gpu():
        run([*LOCKED, str(CUDA)], total=len(entries_of(CUDA)))
    if project is not None:
        run([*INSTALL, *building, "-e", project])
    check(entries)


def entries_of(lock: Path) -> dict[str, str]:
    """The lines of each distribution that a lock has, by name."""
    text = lock.read_text(encoding="utf-8")
    return {each[1]: each[0] for each in re.finditer(r"^([\w-]+)==.*\n(?: .*\n)*", text, re.M)}


def is_for_a_gpu() -> bool:
    """Whether the torch that is installed asks here for something of cuda.txt."""
    asked = [Requirement(line) for line in requires("torch") or ()]
    locked = entries_of(CUDA)
    return any(
        each.name in locked and (each.marker is None or each.marker.evaluate({"extra": ""}))
        for each in asked
    )


def check(entries: Mapping[str, str]) -> None:
    """See that what the lock names has what it needs; what else someone installed is theirs."""
    said = subprocess.run([*PIP, "check"], stdout=subprocess.PIPE, text=True).stdout
    wrong = [line for line in said.splitlines() if canonicalize_name(line.split()[0]) in entries]
    if wrong:
        sys.exit("\n".join([*wrong, f"remove {sys.prefix} and run the command again"]))


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
    main(*sys.argv[1:])

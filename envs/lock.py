"""Write the locks of this folder anew: `make locks`.

Versions stay as they stand in the locks, but for what pyproject.toml asks for and they do not have;
to change one, edit it there first. Each has the digests of all files that the package index has of
it, for every platform, and pip takes no other file (--require-hashes).
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = "3.11"
# What is wanted on systems alone that the README does not name.
ELSEWHERE = re.compile(r"\S+ ; sys_platform == '(win32|emscripten)'")
# What torch brings along where it is built for a GPU.
OF_GPU = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton==)")


def main() -> None:
    """Write all of them."""
    main, cuda = HERE / "main.txt", HERE / "cuda.txt"
    known = "\n".join(version for lock in (main, cuda) for version in versions(lock))
    project = ["--extra", "test", str(HERE.parent / "pyproject.toml")]
    found = compiled(project, known)
    write(main, [entry for entry in found if not OF_GPU.match(entry)])
    write(cuda, [entry for entry in found if OF_GPU.match(entry)])
    write_conda(main)
    # Of all other locks, all versions are known.
    for lock in sorted({*HERE.glob("*.txt")} - {main, cuda}):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(versions(lock)))
            file.flush()
            write(lock, compiled(["--no-deps", file.name], ""))


def compiled(arguments: list[str], constraints: str) -> list[str]:
    """What uv makes of some requirements: an entry a distribution, with its digests."""
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder, "known.txt")
        known.write_text(constraints, encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--universal"]
        command += ["--python-version", PYTHON, "--generate-hashes", "--constraints", str(known)]
        command += ["--no-annotate", "--no-header", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        # uv has said why. What torch brings along follows from it.
        sys.exit("error: these versions cannot be locked; of another torch, empty cuda.txt first")
    entries = re.split(r"\n(?=\S)", done.stdout.strip())
    return [with_builds(entry) for entry in entries if not ELSEWHERE.match(entry)]


def with_builds(entry: str) -> str:
    """With the digests of builds without a GPU, if it is torch's."""
    version = re.match(r"torch==([\d.]+)", entry)
    if version is None:
        return entry
    lines = (HERE / "torch-cpu.sha256").read_text(encoding="utf-8").splitlines()
    builds = [line.split()[0] for line in lines if f"torch-{version[1]}+cpu-" in line]
    if not builds:
        sys.exit(f"error: torch-cpu.sha256 has no builds of torch {version[1]}; add their digests")
    return " \\\n".join([entry, *(f"    --hash=sha256:{digest}" for digest in builds)])


def versions(lock: Path) -> list[str]:
    """NAME==VERSION of all that a lock has."""
    return re.findall(r"^[\w.-]+==[^\s;\\]+", lock.read_text(encoding="utf-8"), re.M)


def write_conda(lock: Path) -> None:
    """Write the environment of `snakemake --sdm conda` with the versions of a lock."""
    pinned = re.findall(r"^[\w.-]+==[^\\\n]+", lock.read_text(encoding="utf-8"), re.M)
    content = ["# For `snakemake --sdm conda`: the versions of main.txt. Written by `make locks`."]
    content += ["channels: [conda-forge, nodefaults]", "dependencies:", f"  - python={PYTHON}"]
    content += ["  - pip", "  - pip:", *(f'      - "{each.strip()}"' for each in pinned), ""]
    lock.with_suffix(".yaml").write_text("\n".join(content), encoding="utf-8")


def write(lock: Path, entries: list[str]) -> None:
    """Put entries in the place of those that a lock has, below its comments."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    lock.write_text("\n".join([*head, *entries, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()

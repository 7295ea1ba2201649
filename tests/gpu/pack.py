"""`make gpu-kit`: pack what a build needs on a GPU machine without network into the folder `.gpu`.

The parts are the sources with their commit, the packages that the machine's image lacks, and the
built corpus of a scale. `image.txt` lists the packages of the image. `run.py` unpacks and runs."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KIT = ROOT / ".gpu"
SOURCE, PACKAGES, RESULTS = PARTS = "source", "packages", "results"
# The image has other versions, which do not fit, or whose bounds are narrow.
REPLACED = ("rich", "filelock", "fsspec", "typing-extensions", "psutil", "tokenizers", "typer")
# Of the size of the whole kit: solvers, and kernels for other versions of CUDA.
LEFT_OUT = re.compile(r"^(\./)?(pulp/solverdir|bin/|bitsandbytes/libbitsandbytes_(?!cpu|cuda130))")
TYPESETTING = "typst"  # of no job there
# Jobs and planning read neither of these.
RELEASED = ("results/reference", "figures/reference")


def run(*command: object, **how) -> str:
    """Run a command that must succeed; return what it prints."""
    return subprocess.run([*map(str, command)], check=True, text=True, stdout=-1, **how).stdout


def pack(name: str, folder: Path, paths=(".",)) -> None:
    """Write a part of the kit."""
    with tarfile.open(KIT / f"{name}.tar.xz", "w:xz", preset=6) as archive:
        for path in paths:
            archive.add(folder / path, path, filter=kept)


def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return an entry without its owner; None for what is left out."""
    if LEFT_OUT.match(entry.name) or "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def pack_source(folder: Path) -> None:
    """Pack a clone with one commit, so that records on the other side name it."""
    serve = "git -c uploadpack.allowFilter=true upload-pack"
    clone = folder / SOURCE
    run("git", "clone", "-q", "-u", serve, "--depth=1", "--filter=blob:none", "--no-checkout",
        f"file://{ROOT}", clone)  # fmt: skip
    paths = ["/*", *(f"!/{each}/" for each in RELEASED)]
    run("git", "-C", clone, "sparse-checkout", "set", "--no-cone", *paths)
    run("git", "-C", clone, "checkout", "-q", "--detach", "HEAD")
    run("git", "-C", clone, "config", "remote.origin.url", "none")
    pack(SOURCE, clone)


def missing(python: str, folder: Path) -> list[str]:
    """Return what the project requires beside the image, in the versions of the lock."""
    lock = folder / "lock.txt"
    text = (ROOT / "envs/main.txt").read_text(encoding="utf-8")
    lock.write_text("\n".join(re.findall(r"^[\w.-]+==[\w.]+", text, flags=re.M)))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [each for each in project["dependencies"] if not each.startswith(TYPESETTING)]
    report = folder / "report.json"
    run(python, "-m", "pip", "install", "-q", "--ignore-installed", "--dry-run", "--report", report,
        "-c", lock, *wanted)  # fmt: skip
    image = {*(HERE / "image.txt").read_text(encoding="utf-8").split()} - {*REPLACED}
    found = {}
    for each in json.loads(report.read_text())["install"]:
        name = re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower()
        if name not in image and not name.startswith("nvidia-"):
            found[name] = each["metadata"]["version"]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def pack_packages(python: str, folder: Path) -> None:
    """Pack the missing packages."""
    install = (python, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target")
    run(*install, folder / PACKAGES, *missing(python, folder))
    pack(PACKAGES, folder / PACKAGES)


def pack_results(scale: str, figures: str) -> None:
    """Build the corpora that figures of a scale train on, and pack them."""
    snakemake = [sys.executable, "-m", "snakemake", "--config", f"scale={scale}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    run(*snakemake, f"figures={figures}", "--", f"results/{scale}/corpus/main/manifest.json",
        cwd=ROOT, env=environment)  # fmt: skip
    pack(RESULTS, ROOT, [f"results/{scale}/corpus/main"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="gpu")
    parser.add_argument("--figures", default="fig04 fig06 fig07 fig09")
    parser.add_argument("--python", default="python3.12", help="that of the image, with pip")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    chosen = parser.parse_args()
    if edits := run("git", "-C", ROOT, "status", "--porcelain", "--", "workflow", "config", "envs"):
        sys.exit(f"error: the kit takes a commit, and there are edits; commit them first:\n{edits}")
    KIT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as place:
        folder = Path(place)
        if RESULTS in chosen.parts:
            pack_results(chosen.scale, chosen.figures)
        if SOURCE in chosen.parts:
            pack_source(folder)
        if PACKAGES in chosen.parts:
            pack_packages(chosen.python, folder)
    shutil.copyfile(HERE / "run.py", KIT / "run.py")
    for path in sorted(KIT.iterdir()):
        print(f"{KIT.name}/{path.name}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

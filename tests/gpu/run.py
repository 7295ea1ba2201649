"""Unpack the kit on a GPU machine, build figures of a scale there, and run tests.

    python3 .gpu/run.py --seconds 530 --build "fig04 fig07:202 203" --build "fig06"
    python3 .gpu/run.py --seconds 170 --tests tests/gpu
    python3 .gpu/run.py --seconds 170 --sweep gpu

A build is FIGURES:MORE SEEDS. It begins when the training of the one before has ended, because
training fills the GPU and measuring the cores. After SECONDS all ends. What is finished lies in
$OUT all the time, in parts that each hold what the parts before lack: `collect.py` takes them."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from glob import glob
from pathlib import Path

KIT = Path(__file__).resolve().parent
OUT = Path(os.environ.get("OUT", "out")).resolve()
PLACE = Path(tempfile.gettempdir()) / "ptq-dynamics-gpu"
LOGS = PLACE / "logs"
SOURCE, PACKAGES = PLACE / "source", PLACE / "packages"
REASON = "the corpus of another machine; its text is that of the packages of the locked environment"
EVERY = 5.0  # seconds between looks at what is finished
PART = 12e6  # bytes after which a part is closed; 16 MB of a file come back
# The command line of the package needs an installed one.
ACCEPT = """
import sys
from pathlib import Path
from ptq_dynamics.cli import maintainers
scale, figures, reason = sys.argv[1:]
maintainers.accept(Path("results", scale, "corpus"), reason, scale, figures)
"""
TRAINING = """
import sys
from ptq_dynamics.cli import chosen
scale, figures, seeds = sys.argv[1:]
plan = chosen.plan(scale=scale, figures=figures, more_seeds=seeds or None)
for job in plan.site.needed(plan.targets()):
    if job.stage == "train.train":
        print(job.manifest)
"""


def say(text: object) -> None:
    """Print a line with the seconds since the begin."""
    print(f"[{time.monotonic() - BEGIN:5.0f} s] {text}", flush=True)


def unpack(part: str, folder: Path) -> None:
    """Unpack a part of the kit, once, and again if it has changed."""
    archive, mark = KIT / f"{part}.tar.xz", PLACE / f"{part}.unpacked"
    if archive.exists():
        about = archive.stat()
        known = f"{about.st_size} {about.st_mtime_ns}"
        if not mark.exists() or mark.read_text() != known:
            with tarfile.open(archive) as entries:
                entries.extractall(folder, filter="fully_trusted")
            mark.write_text(known)


def environment() -> dict[str, str]:
    """Return variables with which this Python finds sources and packages; one thread a job."""
    folders = filter(None, [f"{SOURCE}/workflow", f"{PACKAGES}", os.environ.get("PYTHONPATH")])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def python(*arguments: str, log: str, seconds: float = 120) -> None:
    """Run this Python in the sources, for some seconds at most, and print its output."""
    until = time.monotonic() + max(1.0, seconds)
    with (LOGS / f"{log}.log").open("w+") as file:
        process = begin(arguments, file)
        try:
            while process.poll() is None and (left := until - time.monotonic()) > 0:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(min(EVERY, left))
                keep_logs()
        finally:
            if process.poll() is None:
                file.write(f"{log} is cut\n")
            end(process)
            file.seek(0)
            print(file.read()[-6000:], end="", flush=True)
            keep_logs()


def begin(arguments, file) -> subprocess.Popen:
    """Start this Python in the sources, as the first of a group of processes."""
    how = {"cwd": SOURCE, "env": environment(), "stdout": file, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, *arguments], start_new_session=True, **how)


def end(process: subprocess.Popen, patience: float = 5) -> None:
    """End a process with those that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue


def listed(pattern: str) -> list[str]:
    """List files of the sources, none in hidden folders, which running jobs change and delete."""
    return glob(pattern, root_dir=SOURCE, recursive=True)


def keep_logs() -> None:
    """Pack the logs of all steps and jobs, and tables of sweeps, into one file, since few files
    come back."""
    partial = OUT / ".partial-logs"
    with tarfile.open(partial, "w:xz", preset=1) as archive:
        archive.add(LOGS, "logs")
        for name in listed("results/*/*/**/.log") + listed("results/sweep/*.csv"):
            with suppress(OSError):  # a job may publish it meanwhile
                archive.add(SOURCE / name, name)
    partial.replace(OUT / "logs.tar.xz")


class Results:
    """Finished results, in archives of at most some size."""

    def __init__(self, scale: str) -> None:
        self.folder, self.number = f"results/{scale}", 0
        self.packed, self.open = set[Path](), list[Path]()

    def _part(self) -> Path:
        return OUT / f"results-{self.number}.tar.xz"

    def pack(self) -> int:
        """Write the last part again if more has finished; return the number of all results."""
        stages = ("train", "average", "measure", "curvature")
        found = {SOURCE / n for s in stages for n in listed(f"{self.folder}/{s}/**/record.json")}
        new = sorted(found - self.packed)
        if new:
            self.open += new
            self.packed |= {*new}
            partial = OUT / ".partial"
            with tarfile.open(partial, "w:xz", preset=1) as archive:
                for path in self.open:
                    self._add(archive, path)
            partial.replace(self._part())
            if self._part().stat().st_size > PART:
                self.number, self.open = self.number + 1, []
        return len(found)

    def _add(self, archive: tarfile.TarFile, place: Path) -> None:
        """Add a record and the files of its result, without checkpoints and states."""
        names = json.loads(place.read_text())["files"]
        small = [name for name in names if "/" not in name and not name.startswith("state-")]
        parts = (place, *map(place.with_name, small))
        for path in filter(Path.exists, parts):
            archive.add(path, path.relative_to(SOURCE))


def build(scale: str, builds: list[str], results: Results, until: float) -> None:
    """Run builds, each from the end of the training before it on; pack what finishes."""
    waiting, running = list(builds), list[tuple[str, subprocess.Popen]]()
    trained, packed, before = list[Path](), 0.0, ""
    try:
        while (waiting or any(p.poll() is None for _, p in running)) and time.monotonic() < until:
            idle = all(p.poll() is not None for _, p in running)
            if waiting and (idle or all(path.exists() for path in trained)):
                figures, _, seeds = waiting.pop(0).partition(":")
                name = f"build-{len(running)}"
                listed = subprocess.run(
                    [sys.executable, "-c", TRAINING, scale, figures, seeds],
                    cwd=SOURCE, env=environment(), text=True, capture_output=True,
                )  # fmt: skip
                print(listed.stderr[-1500:] if listed.returncode else "", end="")
                trained = [SOURCE / line for line in listed.stdout.split()]
                chosen = [f"scale={scale}", f"figures={figures}"]
                chosen += [f"more_seeds={seeds}"] if seeds else []
                command = ("-m", "snakemake", "--config", *chosen, "--keep-going", "--", "figures")
                running.append((name, begin(command, (LOGS / f"{name}.log").open("w"))))
                say(f"{name}: {figures}, more seeds {seeds or 'none'}; {len(trained)} runs")
            if time.monotonic() > packed + EVERY:
                done = sum(path.exists() for path in trained)
                now = f"{results.pack()} results; {done} of {len(trained)} runs of the last build"
                keep_logs()
                if now != before:
                    say(now)
                packed, before = time.monotonic(), now
            time.sleep(0.5)
    finally:
        results.pack()  # first, since a call that is cut may have seconds left
        for name, process in running:
            was = "had time left" if process.poll() is not None else "is cut"
            end(process)
            say(f"{name} {was}, exit status {process.returncode}")
        say(f"{results.pack()} results came back")
        keep_logs()
    for name, _ in running:
        lines = (LOGS / f"{name}.log").read_text(errors="replace").splitlines()
        errors = [line for line in lines if "rror" in line and "--keep-going" not in line]
        print("\n".join(errors)[-1500:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="gpu")
    parser.add_argument("--seconds", type=float, default=530)
    parser.add_argument("--build", action="append", default=[], help="FIGURES:MORE SEEDS")
    parser.add_argument("--tests", nargs="*", default=[], help="of the sources, marked gpu")
    parser.add_argument("--sweep", help="of config/sweeps, before the builds")
    parser.add_argument("--bench", help="a scale; beside a plain loop")
    parser.add_argument("--no-packages", action="store_true", help="this Python has all packages")
    chosen = parser.parse_args()
    until = BEGIN + chosen.seconds
    # A call that is cut packs what has finished.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    for folder in (OUT, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    for part in ("source", "results", *([] if chosen.no_packages else ["packages"])):
        unpack(part, PACKAGES if part == "packages" else SOURCE)
    say(f"unpacked; Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    if shutil.which("nvidia-cuda-mps-control"):
        # A server that runs already answers with an error.
        quiet = {"stdin": -3, "stdout": -3, "stderr": -3}  # DEVNULL: the server keeps what it gets
        subprocess.run(["nvidia-cuda-mps-control", "-d"], **quiet)
        say("MPS is on")
    if (chosen.sweep or chosen.build) and (SOURCE / "results" / chosen.scale).exists():
        figures = chosen.build[0].partition(":")[0] if chosen.build else "fig04"
        python("-c", ACCEPT, chosen.scale, figures, REASON, log="accept")
    if chosen.sweep:
        words = ("config/sweeps/compare.py", f"config/sweeps/{chosen.sweep}.yaml")
        python(*words, log="sweep", seconds=until - time.monotonic())
    if chosen.build:
        build(chosen.scale, chosen.build, Results(chosen.scale), until)
    if chosen.tests:
        left = until - time.monotonic() - (90 if chosen.bench else 0)
        words = ["-m", "gpu", "-n", "0", "-v", "-rsP", "-p", "no:cacheprovider", "--durations=12"]
        words += ["--show-capture=stdout"]
        python("-m", "pytest", *chosen.tests, *words, log="tests", seconds=left)
    if chosen.bench:
        python("tests/bench.py", chosen.bench, log="bench", seconds=until - time.monotonic())
    say("all is done")


BEGIN = time.monotonic()
if __name__ == "__main__":
    main()

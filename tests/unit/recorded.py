"""Results with records, written as jobs would write them, for tests of what reads these."""

from pathlib import Path

from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.machine import Device, Git, Machine
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.labels import ORIGIN

MACHINE = Machine("Linux", "x86_64", "a processor", 2, 2**30, "3.11.7")
RUN = "results/smoke/train/a/seed-1"
LOSSES = "results/smoke/measure/a/seed-1/fp/all"


def write(folder, stage, files, inputs=(), stem=None, settings=None, facts=None):
    """Write one result below the current folder, which reads manifests; its record."""
    labels = inputs if isinstance(inputs, dict) else {"inputs": [*inputs]}
    job = {"stage": stage, "name": stem or Path(folder).name, "folder": folder, "stem": stem}
    job |= {"inputs": labels, "settings": settings or {}, "code": {"m": "1"}, "libraries": {}}
    paths = Paths.of(job)
    paths.folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        paths.folder.joinpath(name).write_bytes(content)
    entries = manifest.describe(paths.folder, paths.manifest, {}).files
    digests = {
        path: manifest.read(Path(path)).digest() for group in labels.values() for path in group
    }
    found = Record(
        job=job,
        inputs=digests,
        files={name: entries[name] for name in files},
        facts=facts or {},
        packages={"torch": "2.13.0"},
        git=Git("0" * 40, False),
        machine=MACHINE,
        device=Device("cpu"),
        started="2026-01-01T00:00:00+00:00",
        seconds=2.5,
        cpu_seconds=2.0,
        peak_memory=1000,
        threads=1,
        processes=1,
    )
    paths.record.write_text(found.text())
    paths.manifest.write_text(found.manifest(paths.manifest).text())
    return found


def build(rate=0.003):
    """A small build below the current folder: corpus, run, losses and two figures, of which
    pictures carry their identity."""
    corpus = "results/smoke/corpus/main"
    write(corpus, "corpus.embedded", {"train.bin": b"text"})
    model, read = {"model.bin": b"%r" % rate}, [f"{corpus}/manifest.json"]
    write(RUN, "train.train", model, read, settings={"schedule": {"peak_lr": rate}})
    write(LOSSES, "measure.loss", {"losses.bin": b"1 %r" % rate}, [f"{RUN}/manifest.json"])
    measured = {"measure a seed 1 fp": [f"{LOSSES}/manifest.json"]}
    for name in ("fig04", "fig06"):
        known = write("figures/smoke", "figures.a", {}, measured, name, {"of": name})
        mark = ORIGIN.format(scale="smoke scale", identity=known.identity).encode()
        files = {f"{name}.png": b"\x89PNG " + mark, f"{name}.csv": b"x,y\n1,2\n"}
        write("figures/smoke", "figures.a", files, measured, name, {"of": name})

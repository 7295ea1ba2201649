"""`make counts`: the tokens of every embedded corpus, into config/corpora.lock.json (minutes)."""

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from ptq_dynamics.config import counts, scales
from support import ROOT, Workspace, plan


def count(scale: str, folder: Path) -> dict[str, counts.Counted]:
    """The tokens that the corpora of a scale have, each written by its job in a folder."""
    made, counted = plan(scale), dict[str, counts.Counted]()
    workspace = Workspace(folder, made)
    for name, text in counts.texts(made.site.config.scale).items():
        job = made.trajectories.corpus(name)
        if "functions" in job.inputs:
            workspace.build(made.trajectories.functions(job.settings.of))
        tokens = workspace.build(job, train=1).facts["tokens"]["train"]
        counted[name] = counts.Counted(text, tokens)
    return counted


if __name__ == "__main__":
    lock = {}
    for scale in scales(ROOT / "config"):
        with TemporaryDirectory() as folder:
            lock[scale] = {name: asdict(each) for name, each in count(scale, Path(folder)).items()}
    text = json.dumps({name: each for name, each in lock.items() if each}, indent=1)
    (ROOT / "config" / counts.FILE).write_text(f"{text}\n")

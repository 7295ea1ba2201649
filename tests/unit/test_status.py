"""What `ptq-dynamics status` prints, of results that are recorded and not built."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ptq_dynamics.cli import chosen
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.record import Acceptance
from ptq_dynamics.provenance.state import find
from recorded import write
from support import ROOT

FIG04 = "status --scale smoke --figures fig04"
ACCEPTED = (Acceptance("words " * 40, "2026-01-01T00:00:00+00:00", (), "0" * 64),)


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)


def record(seeds=""):
    """Record figure 4 and all that it needs as up to date; return the number of results."""
    planned = chosen.plan(scale="smoke", figures="fig04", more_seeds=seeds)
    findings = find(planned, planned.targets())
    for job in (planned.site.made[finding.manifest] for finding in findings):
        made = write(job.folder, job.stage, {}, stem=job.stem)
        digests = {path: manifest.read(Path(path)).digest() for path in job.needs}
        made = replace(made, job=job.spec, inputs=digests, accepted=ACCEPTED)
        job.paths.record.write_text(made.text())
    return len(findings)


def test_where_nothing_is_built_one_line_tells_what_builds_it(project, command):
    write("results/laptop/corpus/main", "corpus.embedded", {})
    status, printed, _ = command(f"{FIG04} --also claims")
    assert status == 1 and printed.count("\n") == 1
    assert re.match("none of [0-9]+ results is built at scale smoke yet; run make ", printed)
    assert 'run make all SCALE=smoke FIGURES="fig04"; ' in printed
    assert printed.endswith("; scales with results here: laptop\n")


def test_the_answer_comes_first_and_notes_are_short(project, command):
    count = record()
    status, printed, _ = command(FIG04)
    answer, note = printed.splitlines()
    assert status == 0 and answer == f"all {count} results are up to date; nothing to do"
    assert note == f"note: {count} results are accepted; --json has the reasons"
    Path("results/smoke/corpus/main/record.json").unlink()
    status, printed, _ = command(FIG04)
    assert status == 1 and printed.startswith("1 missing, ")


def test_other_seeds_whose_results_are_here_are_named(project, command):
    record("202 203")
    status, printed, _ = command(FIG04)
    first, outdated, *_ = printed.splitlines()
    assert status == 1 and first.startswith("1 outdated, ")
    assert "draw fig04" in outdated and "seeds 201, 202, 203 → 201" in outdated
    assert "--more-seeds '202 203' includes them" in command(f"{FIG04} --more-seeds 203")[1]

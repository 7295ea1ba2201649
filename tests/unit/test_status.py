"""What `ptq-dynamics status` prints, of results that are recorded and not built."""

from dataclasses import replace
from pathlib import Path

from ptq_dynamics.cli import chosen
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.record import Acceptance
from ptq_dynamics.provenance.state import find
from recorded import write
from support import ROOT

FIG04 = "status --scale smoke --figures fig04"
ACCEPTED = (Acceptance("words " * 40, "2026-01-01T00:00:00+00:00", (), "0" * 64),)
NOTHING = 'results is built at scale smoke yet; run make all SCALE=smoke FIGURES="fig04"; '


def test_status_answers_first_and_names_scales_and_seeds_with_results(
    tmp_path, monkeypatch, command
):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    write("results/laptop/corpus/main", "corpus.embedded", {})
    status, printed, _ = command(f"{FIG04} --also claims")
    assert status == 1 and printed.count("\n") == 1
    assert printed.endswith(f"{NOTHING}scales with results here: laptop\n")
    seeds = "--more-seeds '202 203'"
    plan = chosen.plan(scale="smoke", figures="fig04", more_seeds="202 203")
    findings = find(plan, plan.targets())
    for job in (plan.site.made[finding.manifest] for finding in findings):
        made = write(job.folder, job.stage, {}, stem=job.stem)
        digests = {path: manifest.read(Path(path)).digest() for path in job.needs}
        made = replace(made, job=job.spec, inputs=digests, accepted=ACCEPTED)
        job.paths.record.write_text(made.text())
    status, printed, _ = command(f"{FIG04} {seeds}")
    answer, note = printed.splitlines()
    assert status == 0 and answer == f"all {len(findings)} results are up to date; nothing to do"
    assert note == f"note: {len(findings)} results are accepted; --json has the reasons"
    # The figure has seeds that are not chosen here, and are there.
    for more in ("", "--more-seeds 203"):
        status, printed, _ = command(f"{FIG04} {more}")
        first, outdated, *_ = printed.splitlines()
        assert status == 1 and first.startswith("1 outdated, ")
        assert "draw fig04" in outdated and "seeds 201, 202, 203 → 201" in outdated
        assert f"results of more seeds are here: {seeds} includes them\n" in printed

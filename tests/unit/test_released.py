"""What is released of a scale: compared by the records in its archive, checked and traced."""

import re
import shutil
import tarfile
from dataclasses import replace
from io import BytesIO

import pytest
from ptq_dynamics.jobs import record
from ptq_dynamics.measure import measurements
from ptq_dynamics.problem import Problem
from ptq_dynamics.provenance import packed
from ptq_dynamics.provenance.comparison import Build, parting
from ptq_dynamics.provenance.packed import RELEASE
from support import ROOT, python

KEPT = ROOT / "results/reference/smoke"


def command(folder, *arguments):
    return python(["-m", "ptq_dynamics.cli", *map(str, arguments)], folder)


@pytest.fixture(scope="module")
def damped(tmp_path_factory):
    """The release of scale smoke as if it had been made with another damping of one quantizer, of
    which all that is made from the first such result came out otherwise; and that result."""
    folder = tmp_path_factory.mktemp("damped")
    shutil.copy(KEPT / "measurements.record.json", folder)
    table = measurements.read(KEPT / "measurements.csv")
    table.loc[table.stderr.notna().idxmax(), "value"] += 1
    measurements.write(table.iloc[:-30], folder / "measurements.csv")
    texts = {
        path.relative_to(KEPT / RELEASE): text for path, text in packed.records(KEPT / RELEASE)
    }
    top = min(path for path in texts if "/quantize/" in str(path) and "gptq" in str(path)).parent
    made = str(top / "manifest.json")
    with tarfile.open(folder / RELEASE, "w:xz", preset=0) as archive:
        for path, text in texts.items():
            known = record.parse(text, path)
            if made in {*known.output, *known.inputs}:
                known = replace(known, output=dict.fromkeys(known.output, "0" * 64))
            if made in known.output:
                settings = {**known.job["settings"], "damping": "another"}
                other = {"settings": settings, "engine": 0, "environment": {}}
                known = replace(known, job={**known.job, **other})
            content = known.text().encode()
            entry = tarfile.TarInfo(str(path))
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    return folder, made


def test_builds_part_where_records_in_a_release_say(damped):
    folder, made = damped
    found = parting(Build(folder), Build(KEPT))
    assert found is not None and found.result == made
    assert "damping is new (another)" in found.reasons, found.reasons
    assert parting(Build(KEPT), Build(KEPT)) is None


def test_what_differs_comes_first_and_few_reasons_are_told(damped):
    folder, made = damped
    done = command(ROOT, "compare", folder, KEPT)
    assert done.returncode == 1 and not done.stderr, done.stderr
    counts, first, *_, last = done.stdout.splitlines()
    assert "30 only in one" in counts and "1 different" in counts
    assert first.startswith("different: "), done.stdout
    assert last.startswith("they part first at gptq ") and made in last
    assert re.search(r"; and \d+ more$", last) and len(last) < 500, last


def test_a_release_that_is_damaged_is_a_problem(tmp_path):
    whole = (KEPT / RELEASE).read_bytes()
    for content in (whole[:5000], b"none", whole[:5000] + b"x" + whole[5001:]):
        (tmp_path / RELEASE).write_bytes(content)
        with pytest.raises(Problem, match="is none that tar reads"):
            list(packed.records(tmp_path / RELEASE))

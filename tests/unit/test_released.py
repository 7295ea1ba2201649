"""What is released of a scale: compared by the records in its archive, checked and traced."""

import json
import random
import re
import shutil
import tarfile
from contextlib import chdir
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.measure import measurements
from ptq_dynamics.provenance import genuine, packed, sums
from ptq_dynamics.provenance.archive import Archive, identity_in
from ptq_dynamics.provenance.comparison import Build, parting
from ptq_dynamics.provenance.packed import RELEASE
from ptq_dynamics.provenance.sums import SUMS, Places
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
            known = record.read(path, text)
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


@pytest.mark.parametrize("scale", ["laptop", "smoke", sums.SWEEPS])
def test_what_is_released_is_as_its_list_says(scale):
    with chdir(ROOT):
        assert list(sums.wrong(Places.of(scale))) == []


@pytest.fixture
def kept(tmp_path):
    """A folder with what is released of scale smoke."""
    for top in ("results", "figures"):
        place = f"{top}/reference/smoke"
        shutil.copytree(ROOT / place, tmp_path / place)
    with chdir(tmp_path):
        yield Places.of("smoke")


def test_every_byte_of_a_release_counts(kept):
    """Also of the list itself; what is away, and what is there beside it."""
    chance = random.Random(seed := random.SystemRandom().randrange(10**6))
    files = kept.files()
    assert len(files) > 100
    for path in files:
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    named = {line.split()[0] for line in sums.wrong(kept)}
    assert named == {*map(str, files)}, f"seed {seed}"
    sums.write(kept)
    assert list(sums.wrong(kept)) == []
    whole = kept.sums.read_bytes()
    for at in [*range(200), len(whole) - 1]:
        kept.sums.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert list(sums.wrong(kept)), at
    kept.sums.write_bytes(whole)
    gone, new = kept.pictures / "fig04.png", kept.results / "tables/new.md"
    gone.unlink()
    new.touch()
    (kept.results / "crate.zip").touch()
    assert {line.split()[0] for line in sums.wrong(kept)} == {str(gone), str(new)}


def test_another_page_of_captions_renews_the_list(kept):
    (kept.pictures / "README.md").write_text("other")
    sums.renew(Path("figures"))
    assert len(list(sums.wrong(kept))) == 1
    sums.renew(kept.pictures)
    assert list(sums.wrong(kept)) == []
    kept.sums.unlink()
    sums.renew(kept.pictures)
    assert not (kept.results / SUMS).exists()


@pytest.mark.parametrize(
    ("path", "top"),
    [
        ("figures/reference/smoke/fig04.csv", "figures/smoke/fig04.manifest.json"),
        ("figures/reference/smoke/fig04.png", "figures/smoke/fig04.manifest.json"),
        ("results/reference/smoke/measurements.csv:12", "results/smoke/measurements.manifest.json"),
        ("results/reference/smoke/tables/claims.md", "results/smoke/tables/manifest.json"),
    ],
)
def test_what_is_released_is_traced_by_the_records_beside_it(path, top):
    done = command(ROOT, "trace", path, "--json")
    assert done.returncode == 0, done.stderr
    chain = json.loads(done.stdout)
    assert chain["top"] == top and chain["bytes"] == "as published" and not chain["missing"]
    place = ROOT / path.partition(":")[0]
    beside = place.with_name(f"{place.stem}.record.json")
    known = record.read(beside if beside.exists() else place.with_name("record.json"))
    assert chain["steps"][0]["started"] == known.started
    texts = {str(p.relative_to(KEPT / RELEASE)): t for p, t in packed.records(KEPT / RELEASE)}
    for step in chain["steps"][1:]:
        if text := texts.get(step["manifest"].replace("manifest.json", "record.json")):
            assert step["started"] == json.loads(text)["started"]


def test_records_in_place_stand_before_released_ones(kept):
    """Those of a build that came out as released, which ran at another time."""
    released = kept.pictures / "fig04.record.json"
    own = Path("figures/smoke/fig04.record.json")
    own.parent.mkdir()
    known = record.read(released)
    own.write_text(replace(known, started="2000-01-01T00:00:00+00:00").text())
    here = Archive.here()
    (path,) = known.output
    for found in (here.maker(path, known.output[path]), here.by_identity(known.identity)):
        assert found is not None and found.place == own
    first = Archive.here(first=[kept.pictures]).by_identity(known.identity)
    assert first is not None and first.place == released


def test_a_file_that_is_released_without_a_record_or_in_no_list_is_of_no_result(kept):
    stray = kept.results / "tables/stray.md"
    stray.touch()
    with pytest.raises(Problem, match="so it is of no release"):
        genuine.described(stray)
    assert genuine.described(kept.results / "cost.csv") is None
    kept.sums.unlink()
    found = genuine.described(kept.results / "claims.json")
    assert found is not None and genuine.check(kept.results / "claims.json", found) == "unknown"


def test_a_picture_is_compared_with_what_is_released(kept):
    """By its bytes, whatever it is called; one of a format that is not released is not compared."""
    picture = kept.pictures / "fig04.png"
    content = picture.read_bytes()
    scale, identity = identity_in(picture) or ("", "")
    found = Archive.here().by_identity(identity)
    assert found is not None and "smoke" in scale
    lone = Path("mailed")
    for changed, verdict in (
        (content, "as published"),
        (content[:-20] + b"x" + content[-19:], "different"),
        (b"%PDF" + content[4:], "unknown"),
    ):
        lone.write_bytes(changed)
        assert identity_in(lone) == (scale, identity)
        assert genuine.check(lone, found) == verdict

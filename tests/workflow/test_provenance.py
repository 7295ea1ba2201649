"""Where results come from: status in words, chains, an audit of every byte, builds compared."""

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from project import SHOWN, TABLE, UNUSUAL, Project
from ptq_dynamics.base.content import sha256
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.paths import MANIFEST, RECORD
from ptq_dynamics.graph.captions import PAGE, page
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import LOSSES
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.audit import audit
from ptq_dynamics.provenance.comparison import Build, compare, parting
from safetensors.numpy import load_file, save_file
from support import ROOT

PACKAGE = "workflow/ptq_dynamics"
QUANTIZED = "results/smoke/quantize/rainbow-036/seed-101/gptq-4bit/all"
ERROR = "quantization_error"
LOSSES_OF = "results/smoke/evaluate/rainbow-036/seed-101/gptq-4bit/all"


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    """A copy of the first build, with its page of captions."""
    folder = shutil.copytree(built.folder, tmp_path_factory.mktemp("provenance") / "project")
    copy = Project(folder, built.figures)
    assert command(copy, "captions", "--scale", "smoke").returncode == 0
    return copy


def command(project, *arguments):
    return project.process([sys.executable, "-m", "ptq_dynamics.cli", *arguments])


def status(project):
    """What the command says of results that are not fresh, by their manifests."""
    found = {each["manifest"]: each for each in project.status()}
    return {path: (each["state"], each["why"]) for path, each in found.items() if each["why"]}


def test_all_is_fresh_and_said_in_one_line(project):
    done = command(project, "status", "--scale", "smoke", "--figures", project.figures)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"all \d+ results are fresh; nothing to do\n", done.stdout)


EDITS = {
    "configuration": (
        "config/quantizers.yaml",
        "damping: 0.05",
        "damping: 0.01",
        f"{QUANTIZED}/{MANIFEST}",
        "damping 0.05 → 0.01",
    ),
    "method": (
        f"{PACKAGE}/measure/joining.py",
        "losses |= load_file(manifest.file(LOSSES))",
        "losses = losses | load_file(manifest.file(LOSSES))",
        "figures/smoke/fig04.manifest.json",
        "measure.joining.block_losses changed",
    ),
}


@pytest.mark.parametrize("kind", EDITS)
def test_status_says_what_changed(project, kind):
    file, old, new, stale, words = EDITS[kind]
    with project.edited(file) as (path,):
        project.replace(path, old, new)
        found = status(project)
        state, why = found[stale]
        assert state == "stale" and words in why, why
        # What depends on it is told so, and no more.
        assert all("is stale" in why or words in why for _, why in found.values()), found
    assert status(project) == {}


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_status_names_what_is_damaged_or_missing(project):
    losses, curve = f"{LOSSES_OF}/{LOSSES}", "figures/smoke/fig04.csv"
    account = f"{QUANTIZED}/{RECORD}"
    with project.edited(losses, curve, account) as paths:
        for path in paths:
            damage(path)
        found = status(project)
    assert found[f"{LOSSES_OF}/{MANIFEST}"] == (
        "damaged",
        f"{losses} has other bytes than were published",
    )
    assert found["figures/smoke/fig04.manifest.json"][0] == "damaged"
    state, why = found[f"{QUANTIZED}/{MANIFEST}"]
    assert state == "damaged" and why.startswith(account), why
    gone = project.folder / LOSSES_OF
    shutil.move(gone, project.folder / "away")
    try:
        assert status(project)[f"{LOSSES_OF}/{MANIFEST}"] == ("missing", "it has not been made")
        done = command(project, "status", "--scale", "smoke", "--figures", project.figures)
        assert done.returncode == 1
        (line,) = [line for line in done.stdout.splitlines() if "not been made" in line]
        assert re.fullmatch(r"missing  loss rainbow-036 .*gptq-4bit.*  it has not been made", line)
        assert re.search(r"1 missing, .*\d+ fresh$", done.stdout.strip())
    finally:
        shutil.move(project.folder / "away", gone)
    assert status(project) == {}


def chain(project, path):
    done = command(project, "trace", str(path), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_picture_is_traced_from_wherever_it_lies(project, tmp_path):
    lone = shutil.copy(project.folder / "figures/smoke/fig04.png", tmp_path / "mailed.png")
    paper = shutil.copy(project.folder / "figures/smoke/fig04.pdf", tmp_path / "mailed.pdf")
    content = paper.read_bytes()
    bare = tmp_path / "written-anew.pdf"
    bare.write_bytes(re.sub(rb"/Keywords \(.*?\)|/Info \d+ 0 R", b"", content, flags=re.S))
    found = [chain(project, path) for path in ("figures/smoke/fig04.png", lone, paper)]
    assert all(each == found[0] for each in found), [each["top"] for each in found]
    assert found[0]["bytes"] == "as published"
    # Found by its packet alone, and not as it was published.
    done = command(project, "trace", str(bare), "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == {**found[0], "bytes": "different"}
    assert bare.stat().st_size < len(content) - 80
    steps = {step["manifest"]: step for step in found[0]["steps"]}
    assert found[0]["top"] == "figures/smoke/fig04.manifest.json" and not found[0]["missing"]
    leaves = [step for step in steps.values() if not step["inputs"]]
    assert [step["manifest"] for step in leaves] == ["results/smoke/corpus/main/manifest.json"]
    for path, step in steps.items():
        known = record.read(project.folder / path.replace(MANIFEST, RECORD))
        assert step["settings"] == known.job["settings"] and step["started"] == known.started
        assert step["inputs"] == list(known.inputs) and step["output"] == known.output
        assert (project.folder / step["command"].split()[-1]).exists()


def test_what_is_not_as_published_is_not_traced_as_if_it_were(project, tmp_path):
    fig04, fig06 = "figures/smoke/fig04.png", "figures/smoke/fig06.png"
    with project.edited(fig04, "figures/smoke/fig04.csv") as (picture, table):
        shutil.copyfile(project.folder / fig06, picture)
        table.write_text(table.read_text().replace("1", "2", 1))
        assert chain(project, fig04)["top"] == "figures/smoke/fig06.manifest.json"
        done = command(project, "trace", "figures/smoke/fig04.csv")
        assert done.returncode == 1 and "has other bytes than were published" in done.stderr
    account = "figures/smoke/fig04.record.json"
    with project.edited(account) as (path,):
        damage(path)
        done = command(project, "trace", fig04)
        assert done.returncode == 1 and f"error: {account} " in done.stderr
    for bad, words in (
        (["figures/smoke/fig04.csv:1"], "is no table of measurements"),
        (["x" * 5000], "is no file"),
        ([fig04, "--svg", str(tmp_path)], "cannot be written"),
        ([fig04, "--svg", "a.svg", "--json"], "do not go together"),
    ):
        done = command(project, "trace", *bad)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and words in done.stderr


def test_a_checkpoint_and_a_row_are_traced(project):
    run = "results/smoke/train/rainbow-036/seed-101"
    name = next(n for n in manifest.read(project.folder / run / MANIFEST).files if "model" in n)
    for each in (name, MANIFEST, RECORD):
        found = chain(project, f"{run}/{each}")
        assert (found["top"], found["bytes"]) == (f"{run}/{MANIFEST}", "as published"), each
    frame = measurements.read(project.folder / TABLE)
    wanted = (frame.trajectory == "rainbow-036") & (frame.quantizer == "gptq-4bit")
    number = {m: int(frame.index[wanted & (frame.metric == m)][0]) + 1 for m in ("loss", ERROR)}
    read = {m: set(chain(project, f"{TABLE}:{n}")["steps"][0]["inputs"]) for m, n in number.items()}
    own = {f"{LOSSES_OF}/{MANIFEST}", f"{QUANTIZED}/{MANIFEST}"}
    assert read["loss"] == own
    assert read[ERROR] == own | {f"{LOSSES_OF.replace('gptq-4bit', 'fp')}/{MANIFEST}"}
    done = command(project, "trace", f"{TABLE}:{len(frame) + 1}")
    assert done.returncode == 1 and f"has rows 1 to {len(frame)}" in done.stderr


def test_a_chain_is_drawn(project, tmp_path):
    done = command(project, "trace", "figures/smoke/fig04.png", "--svg", str(tmp_path / "a.svg"))
    assert done.returncode == 0, done.stderr
    top, *below = done.stdout.splitlines()
    assert top.startswith("over_tokens fig04  ") and any("embedded main" in row for row in below)
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.startswith("<svg") and "url(http" not in drawn and "cdnjs" not in drawn
    assert "font-face" not in drawn and re.search(r"font-family: [^;]*, monospace;", drawn)
    known = record.read(project.folder / f"figures/smoke/fig04.{RECORD}")
    assert known.identity in re.search(r"<metadata>(.*)</metadata>", drawn)[1]
    # It is no picture of a figure, of which the bytes are known.
    again = command(project, "trace", str(tmp_path / "a.svg"))
    assert again.returncode == 0 and "its bytes were not checked" in again.stdout, again.stderr


def test_a_picture_with_other_bytes_is_not_told_as_genuine(project, tmp_path):
    picture = project.folder / "figures/smoke/fig04.png"
    assert chain(project, "figures/smoke/fig04.png")["bytes"] == "as published"
    content = bytearray(picture.read_bytes())
    content[-20] ^= 1
    lone = tmp_path / "mailed"
    lone.write_bytes(content)
    with project.edited("figures/smoke/fig04.png") as (path,):
        path.write_bytes(content)
        for each in ("figures/smoke/fig04.png", lone):
            done = command(project, "trace", str(each))
            assert done.returncode == 1 and done.stdout.startswith("over_tokens fig04"), done.stderr
            assert "its bytes are not those that were published" in done.stdout


def wrong_here():
    """What an audit of the folder finds, in this process."""
    plan = Project(Path.cwd()).plan
    pictures = Path(plan.site.pictures)
    text = page(plan.site.config.figures, pictures)
    return audit(Archive.of_scale("smoke"), {pictures / PAGE: text}, ())


def kind_of(path):
    return (
        MANIFEST if path.name.endswith(MANIFEST) else RECORD if path.name.endswith(RECORD) else ""
    )


@pytest.mark.parametrize("kind", [MANIFEST, RECORD, ""], ids=["manifests", "records", "files"])
def test_every_byte_counts(project, tmp_path, kind):
    """One byte of every file is changed, all files of a kind at once, and each is named."""
    folder = shutil.copytree(project.folder, tmp_path / "project")
    chance = random.Random(seed := random.SystemRandom().randrange(10**6))
    with chdir(folder):
        before = wrong_here()
        assert before.wrong == [] and before.results > 90
        files = [
            path
            for top in ("results/smoke", "figures/smoke")
            for path in Path(top).rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.parts)
        ]
        chosen = [path for path in files if kind_of(path) == kind and path.stat().st_size]
        assert len(chosen) > 90
        for path in chosen:
            content = bytearray(path.read_bytes())
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            path.unlink()
            path.write_bytes(content)
        after = wrong_here()
    named = " ".join(after.wrong).split()
    assert not [str(path) for path in chosen if str(path) not in named], f"seed {seed}"
    # The root is of manifests, which hold the digests of files, and of records.
    assert (after.root != before.root) == bool(kind)


def test_the_table_of_code_is_audited_and_comes_back(project):
    asked = ["status", "--captions", "--scale", "smoke", "--figures", project.figures]
    code = record.read(project.folder / QUANTIZED / RECORD).job["code"]
    entry = f"results/smoke/code/{code}.json"
    with project.edited(entry, f"{PACKAGE}/quantize/gptq.py") as (path, module):
        whole = path.read_bytes()
        for content in (b"", b"{}", whole.replace(b"run", b"ran", 1), None):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            with chdir(project.folder):
                (line,) = wrong_here().wrong
            assert line.startswith(entry) and "make figures" in line
            assert command(project, *asked).returncode == 0
            assert path.read_bytes() == whole
        with chdir(project.folder):
            assert wrong_here().wrong == []
        module.write_text(module.read_text() + "\nassert True\n")
        assert "quantize.gptq" in status(project)[f"{QUANTIZED}/{MANIFEST}"][1]
        path.unlink()
        state, why = status(project)[f"{QUANTIZED}/{MANIFEST}"]
        assert state == "stale" and why.startswith("its code changed"), why
        assert not path.exists()


def test_a_table_of_code_that_cannot_be_written_stops_nothing(project, tmp_path):
    folder = shutil.copytree(project.folder, tmp_path / "project", symlinks=True)
    copy, table = Project(folder, project.figures), folder / "results/smoke/code"
    asked = ["status", "--captions", "--scale", "smoke", "--figures", project.figures]
    entry = sorted(table.iterdir())[0]
    for place in (entry, table):
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        place.touch() if place == table else place.mkdir()
        done = command(copy, *asked)
        assert done.returncode == 0 and "all " in done.stdout, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("warning: ") and "remove it" in line and place.name in line
    # Jobs have their results all the same.
    picture = folder / "figures/smoke/fig04.png"
    picture.unlink()
    said = copy.build()
    assert picture.exists() and "is no folder; remove it" in said
    table.unlink()
    assert command(copy, *asked).returncode == 0
    with chdir(folder):
        assert wrong_here().wrong == []


def test_results_behind_a_link_are_like_others(project, tmp_path):
    folder = shutil.copytree(project.folder, tmp_path / "project", symlinks=True)
    quantized, elsewhere = folder / "results/smoke/quantize", tmp_path / "elsewhere"
    quantized.rename(elsewhere)
    quantized.symlink_to(elsewhere)
    copy = Project(folder, project.figures)
    assert status(copy) == {}
    with chdir(folder):
        assert wrong_here().wrong == []
        for name, target in (("around", ".."), ("alias", "corpus")):
            link = Path("results/smoke", name)
            link.symlink_to(target)
            assert wrong_here().wrong == [f"{link} belongs to no result; remove it"]
            link.unlink()
        stray = elsewhere / "stray.csv"
        stray.touch()
        assert wrong_here().wrong == [
            "results/smoke/quantize/stray.csv belongs to no result; remove it"
        ]


def test_an_audit_names_what_belongs_to_nothing(project):
    with chdir(project.folder):
        stray = Path("results/smoke/stray.csv")
        stray.write_text("")
        try:
            assert wrong_here().wrong == [f"{stray} belongs to no result; remove it"]
        finally:
            stray.unlink()
        places = ["results/smoke/.hidden", "results/junk", "results/nosuch/a", "figures/junk.png"]
        places += ["figures/reference/a.png", "results/reference/nosuch/.a"]
        for path in map(Path, places):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        # What passes while jobs run, or was left by them.
        for name in (".lease", ".work-0123/a", ".a.log", f".{PAGE}.partial"):
            Path("results/smoke", name).parent.mkdir(exist_ok=True)
            Path("results/smoke", name).touch()
        try:
            done = command(project, "audit", "--scale", "smoke")
            named = [line for line in done.stdout.splitlines() if line.startswith("wrong: ")]
            assert done.returncode == 1 and {line.split()[1] for line in named} == {*places}
            assert done.stdout.endswith("\n6 things are wrong\n"), done.stdout
        finally:
            for path in map(Path, places):
                path.unlink()
            for folder in ("results/nosuch", "results/reference", "figures/reference"):
                shutil.rmtree(folder)
        away = Path("results/smoke/corpus/main").rename("away")
        try:
            found = wrong_here().wrong
            missing = f"results/smoke/corpus/main/{MANIFEST}, of which there is no record"
            assert found and all(line.endswith(missing) for line in found), found
        finally:
            away.rename("results/smoke/corpus/main")


def test_an_audit_names_links_and_what_cannot_be_read(project, tmp_path):
    folder = shutil.copytree(project.folder, tmp_path / "project")
    with chdir(folder):
        Path("results/smoke/dangling").symlink_to("nowhere")
        Path("figures/smoke", PAGE).write_bytes(b"\xff\xfe")
        Path(QUANTIZED, RECORD).unlink()
        Path(QUANTIZED, RECORD).mkdir()
        Path(LOSSES_OF, "absent.json").touch()
        found = wrong_here().wrong
    words = " ".join(found)
    for name in ("results/smoke/dangling", PAGE, f"{QUANTIZED}/{RECORD}", "absent.json"):
        assert name in words, found
    strangers = [line for line in found if line.endswith("remove it")]
    assert strangers == ["results/smoke/dangling belongs to no result; remove it"]
    copy = Project(folder, project.figures)
    state, why = status(copy)[f"{QUANTIZED}/{MANIFEST}"]
    assert state == "damaged" and RECORD in why
    (folder / LOSSES_OF / LOSSES).unlink()
    state, why = status(copy)[f"{LOSSES_OF}/{MANIFEST}"]
    assert state == "damaged" and "absent.json does not say what was dropped" in why


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "--signer", "me"], "--signers and --signer go together"),
        (["audit", "--rerun", "-3"], "--rerun is -3"),
        (["adopt", ".", "--sha256", "00"], "is a folder, which has no sha256"),
        (["adopt", "https://[", "--sha256", "00"], "is out of reach"),
        (["adopt", "pyproject.toml"], "also give --sha256"),
        (["accept", "figures/smoke", "--reason", " "], "--reason is empty"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(project, arguments, words):
    done = command(project, *arguments, "--scale", "smoke")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr


def test_nothing_is_taken_over_to_another_place(project, tmp_path):
    source = Project(shutil.copytree(project.folder, tmp_path / "source"), project.figures)
    other = Project.copy(tmp_path / "other", figures="fig04")
    choice = ("--scale", "smoke", "--figures", "fig04")
    curve, note = source.folder / LOSSES_OF / LOSSES, source.folder / LOSSES_OF / "absent.json"
    away = shutil.move(curve, tmp_path / "away")
    curve.symlink_to(away)
    done = command(other, "adopt", str(source.folder), *choice)
    assert done.returncode == 1 and "leads elsewhere; nothing was taken over" in done.stderr
    curve.unlink()
    digest = manifest.read(source.folder / LOSSES_OF / MANIFEST).digest()
    note.write_text(json.dumps({"manifest": digest, "files": [LOSSES], "by": "pyproject.toml"}))
    done = command(other, "adopt", str(source.folder), *choice)
    assert done.returncode == 1 and "is of no job that would run here" in done.stderr, done.stdout
    assert not (other.folder / "results").exists()


def test_an_audit_makes_tables_and_a_sample_again(project):
    arguments = ["audit", "--scale", "smoke", "--rerun", "2"]
    done = command(project, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all is well" in done.stdout
    again = len(project.chosen) + 1
    assert f"{again} tables and figures were derived again; {again} came out as they are" in (
        done.stdout
    )
    assert "2 jobs of a random sample were run again; 2 came out as they are" in done.stdout
    assert re.search(r"^the sample has seed \d+$", done.stdout, flags=re.M)
    # A table that was edited along with manifest and record does not come out again.
    table, account = project.folder / TABLE, project.folder / TABLE.replace(".csv", f".{RECORD}")
    listed = project.folder / TABLE.replace(".csv", f".{MANIFEST}")
    with project.edited(*(str(p.relative_to(project.folder)) for p in (table, account, listed))):
        table.write_text(re.sub(r"\n(.*),fp,fp,", r"\n\1,fp,no,", table.read_text(), count=1))
        forge(listed, account, TABLE.replace(".csv", f".{MANIFEST}"))
        found = command(project, "audit", "--scale", "smoke")
        assert found.returncode == 1
        (line,) = [line for line in found.stdout.splitlines() if line.startswith("wrong: ")]
        assert "measurements.manifest.json made again: " in line
        assert "it came out different in measurements.csv" in line, line


def forge(listed, account, path, inputs=(), **changes):
    """Manifest and record, which calls it `path`, as if the files there, and changed inputs and
    settings, had been published."""
    known, before = manifest.read(listed), record.read(account)
    files = {name: manifest._entry(known.folder / name) for name in known.files}
    made = manifest.Manifest(listed, files, known.facts)
    listed.write_text(made.text())
    job = {**before.job, "settings": {**before.job["settings"], **changes}}
    inputs = {**before.inputs, **dict(inputs)}
    found = replace(before, job=job, inputs=inputs, output={path: made.digest()})
    account.write_text(found.text())


def test_builds_are_compared_block_by_block(project, tmp_path):
    """Also where one of them was kept under another name beside the other."""
    root = tmp_path / "project"
    shutil.copytree(project.folder / "results", root / "results")
    old = shutil.copytree(root / "results/smoke", root / "results/smoke-old")
    folder = old / Path(LOSSES_OF).relative_to("results/smoke")
    path = folder / LOSSES
    losses = load_file(path)
    chance = np.random.default_rng(7)
    noise = {n: chance.normal(0.01, 0.02, v.shape).astype("float32") for n, v in losses.items()}
    path.unlink()
    save_file({name: values + noise[name] for name, values in losses.items()}, path)
    table = measurements.read(old / "measurements.csv")
    wanted = (
        (table.trajectory == "rainbow-036")
        & (table.quantizer == "gptq-4bit")
        & (table.metric == "loss")
    )
    for row in table.index[wanted]:
        table.loc[row, "value"] += float(noise[table.checkpoint_id[row]].mean())
    measurements.write(table, old / "measurements.csv")
    forge(folder / MANIFEST, folder / RECORD, f"{LOSSES_OF}/{MANIFEST}", batch=999)
    joined = [old / f"measurements.{name}" for name in (MANIFEST, RECORD)]
    digest = manifest.read(folder / MANIFEST).digest()
    forge(*joined, TABLE.replace(".csv", f".{MANIFEST}"), {f"{LOSSES_OF}/{MANIFEST}": digest})
    one, two = Build(project.folder / TABLE), Build(old)
    found = list(compare(one, two))
    apart = [each for each in found if each.verdict != "equal"]
    assert len(apart) == wanted.sum() and all(each.paired for each in apart)
    for each in apart:
        exact = (losses[each.key[3]].astype(float) + noise[each.key[3]]).astype("float32")
        gap = exact.astype(float) - losses[each.key[3]]
        assert each.error == pytest.approx(gap.std(ddof=1) / len(gap) ** 0.5, rel=1e-6)
        inside = abs(each.one - each.other) <= 2 * each.error
        assert each.verdict == ("within tolerance" if inside else "different")
    parted = parting(one, two)
    assert parted is not None and parted.result == f"{LOSSES_OF}/{MANIFEST}"
    assert [reason for reason in parted.reasons if reason.startswith("batch ")], parted
    done = command(project, "compare", "results/smoke", str(old), "--json")
    counts = Counter(each["verdict"] for each in json.loads(done.stdout)["measurements"])
    assert counts == Counter(each.verdict for each in found)
    assert done.returncode == int(counts["different"] > 0)
    same = command(project, "compare", "results/smoke", TABLE)
    assert same.returncode == 0 and re.fullmatch(r"[\d,]+ equal\n", same.stdout), same.stdout


def test_measurements_are_those_that_were_released(project):
    """Another processor may add numbers in another order."""
    found = list(compare(Build(project.folder / TABLE), Build(ROOT / "results/reference/smoke")))
    counts = Counter(each.verdict for each in found)
    assert counts.keys() - {"only in one"}
    print(f"{SHOWN}beside the released table of scale smoke: {dict(counts)}")
    assert not [each for each in found if each.other is None], counts
    assert not counts["different"], [each for each in found if each.verdict == "different"][:3]


def test_nothing_tells_of_user_machine_or_place(project):
    """No file of a build, made by an unusual user in an unusual place (conftest.py), names
    host, user or any absolute path; but for logs, which nobody releases."""
    names = [os.uname().nodename, UNUSUAL, json.dumps(UNUSUAL)[1:-1], quote(UNUSUAL), "/tmp/"]
    # Shorter ones stand in any weights.
    words = [name.encode() for name in names if len(name) > 4]
    seen = 0
    for top in ("results", "figures"):
        for path in (project.folder / top).rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                content, seen = path.read_bytes(), seen + 1
                assert not [word for word in words if word in content], path
    assert seen > 300


def test_results_of_another_checkout_are_taken_over(project, tmp_path):
    """What fits is copied, with its record; what does not is named and stays away."""
    other = Project.copy(tmp_path / "other", figures=project.figures)
    choice = ("--scale", "smoke", "--figures", project.figures)
    curve = f"{LOSSES_OF}/{LOSSES}"
    with project.edited(curve) as (path,):
        damage(path)
        done = command(other, "adopt", str(project.folder), *choice)
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("damaged")]
    assert line.startswith("damaged  loss rainbow-036") and curve in line
    assert "(0 here" not in done.stdout and "0 were here already" in done.stdout
    found = {path for path, (state, _) in status(other).items() if state == "missing"}
    assert f"{LOSSES_OF}/{MANIFEST}" in found and f"{QUANTIZED}/{MANIFEST}" not in found
    again = command(other, "adopt", str(project.folder / "results/smoke"), *choice)
    assert again.returncode == 0, again.stdout + again.stderr
    assert re.search(r"^\d+ results were taken over, \d+ were here already, 0 ", again.stdout)
    assert status(other) == {}
    for result in (QUANTIZED, "results/smoke/train/rainbow-036/seed-101"):
        texts = [(at.folder / result / RECORD).read_bytes() for at in (project, other)]
        assert texts[0] == texts[1]
    nothing = command(other, "adopt", str(tmp_path), *choice)
    assert nothing.returncode == 1 and "has no results/smoke; name a checkout" in nothing.stderr


def test_a_release_is_an_archive_of_one_digest(project, tmp_path):
    other = Project.copy(tmp_path / "other", figures="fig04")
    archive = shutil.make_archive(
        str(tmp_path / "release"), "tar", project.folder.parent, project.folder.name
    )
    digest = sha256(Path(archive))
    choice = ("--scale", "smoke", "--figures", "fig04", "--sha256")
    wrong = command(other, "adopt", archive, *choice, "0" * 64)
    assert wrong.returncode == 1 and f"has sha256 {digest}" in wrong.stderr, wrong.stderr
    done = command(other, "adopt", archive, *choice, digest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert command(other, "status", *choice[:4]).returncode == 0
    assert not list(other.folder.glob("ptq-dynamics-adopt-*"))


def test_a_change_that_is_accepted_makes_nothing_again_and_is_told(project, tmp_path):
    folder = shutil.copytree(project.folder, tmp_path / "project")
    copy, reason = Project(folder, project.figures), "the same [bold] numbers [/as] before"
    picture, old = folder / "figures/smoke/fig04.png", tmp_path / "old.png"
    shutil.copy(picture, old)
    code = folder / f"{PACKAGE}/figures/resolution.py"
    copy.replace(code, "= 2 * math.sqrt(2)", "= math.sqrt(2) * 2")
    stale = status(copy)
    assert {state for state, _ in stale.values()} == {"stale"}
    choice = ("--scale", "smoke", "--reason", reason)
    for bad, words in (
        (("nowhere", *choice), "is no manifest of a result"),
        (("figures", *choice[:-1], " "), ""),
    ):
        done = command(copy, "accept", *bad)
        assert done.returncode == 1 and words in done.stderr, done.stdout
    done = command(copy, "accept", "figures/smoke/fig04.manifest.json", *choice)
    assert done.returncode == 0, done.stderr
    assert "over_tokens fig04: figures.resolution.TWO_ERRORS changed" in done.stdout
    left = status(copy)
    assert left.pop("figures/smoke/fig04.manifest.json") == ("fresh", f"accepted: {reason}")
    assert left.keys() == stale.keys() - {"figures/smoke/fig04.manifest.json"}
    top = chain(copy, str(old))["steps"][0]
    assert [each["reason"] for each in top["accepted"]] == [reason]
    with chdir(folder):
        assert wrong_here().wrong == [], "the table has the code that was accepted"
    again = [sys.executable, "-m", "ptq_dynamics.engine.run", "--compare", "--job"]
    done = copy.process([*again, "figures/smoke/fig04.record.json"])
    assert done.returncode == 0, done.stderr
    told = command(copy, "trace", "figures/smoke/fig04.pdf").stdout.splitlines()[0]
    assert told.endswith(f"  accepted: {reason}") and re.search(r" \d+\.\d s  \S", told), told
    # What is undone is as it was, by nobody's word; and so it is where it is done again.
    account = folder / f"figures/smoke/fig04.{RECORD}"
    known = account.read_bytes()
    copy.replace(code, "= math.sqrt(2) * 2", "= 2 * math.sqrt(2)")
    assert status(copy) == {} and account.read_bytes() == known
    copy.replace(code, "= 2 * math.sqrt(2)", "= math.sqrt(2) * 2")
    assert status(copy)["figures/smoke/fig04.manifest.json"] == ("fresh", f"accepted: {reason}")
    # `make figures` then has the record say so, by which an audit makes it again.
    copy.replace(code, "= math.sqrt(2) * 2", "= 2 * math.sqrt(2)")
    choose = ("--scale", "smoke", "--figures", project.figures)
    assert command(copy, "status", "--captions", *choose).returncode == 0
    assert record.read(account) == record.read(project.folder / f"figures/smoke/fig04.{RECORD}")
    assert copy.process([*again, "figures/smoke/fig04.record.json"]).returncode == 0
    # Settings that differ are another result, whatever anyone says.
    config = folder / "config/quantizers.yaml"
    copy.replace(config, "damping: 0.05", "damping: 0.01")
    done = command(copy, "accept", QUANTIZED, *choice)
    assert done.returncode == 1 and "has other settings than its result" in done.stderr

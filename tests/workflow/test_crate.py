"""RO-Crates of a build: what another tool makes of them, and what they say beside the tree."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import requests
import requests_cache
from project import SHOWN, Project
from ptq_dynamics.base.content import sha256
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.paths import MANIFEST, RECORD
from ptq_dynamics.report.settings import OTHER, PAGE
from rocrate import vocabs
from rocrate.rocrate import ROCrate
from rocrate_validator.models import Severity
from rocrate_validator.services import ValidationSettings, validate
from support import ROOT

# A file of requests-cache with the contexts, instead of the ones below.
CACHE = "ROCRATE_CACHE"
RUNS = "https://w3id.org/ro/terms/workflow-run"
TERMS = """ParameterConnection ContainerImage DockerImage SIFImage connection sourceParameter
targetParameter md5 sha1 sha256 sha512 environment registry tag containerImage resourceUsage"""
BIOSCHEMAS = "https://bioschemas.org"
# Of version 1.1 of the terms, where the later one that `rocrate` brings has others.
EARLIER = {
    "ComputationalWorkflow": f"{BIOSCHEMAS}/ComputationalWorkflow",
    "FormalParameter": f"{BIOSCHEMAS}/FormalParameter",
    "input": f"{BIOSCHEMAS}/ComputationalWorkflow#input",
    "output": f"{BIOSCHEMAS}/ComputationalWorkflow#output",
}
# A file of the crate cannot have an absolute address, as this check wants of workflows.
IMPOSSIBLE = "The SoftwareApplication id SHOULD be an absolute URI"
METADATA = "ro-crate-metadata.json"
# Of these stages, files go with the crate.
LOOKED_AT = ("figures.", "measure.collect", "claims.", "report.")
BROWSED, OF_SNAKEMAKE = (f"results/smoke/{name}" for name in (PAGE, OTHER))


def command(project, *arguments):
    verb = [sys.executable, "-m", "ptq_dynamics.cli", "crate", "--scale", "smoke"]
    return project.process([*verb, *map(str, arguments)])


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    """A copy of the built project with its documentation, its page and Snakemake's report."""
    folder = shutil.copytree(built.folder, tmp_path_factory.mktemp("crate") / "project")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy2(ROOT / "ARTIFACT.md", folder)
    copied = Project(folder, built.figures)
    done = copied.snakemake(targets=("claims", "tables", "report"))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    (folder / OF_SNAKEMAKE).write_text("<html>of Snakemake</html>")
    return copied


@pytest.fixture(scope="module")
def crate(project, tmp_path_factory):
    place = tmp_path_factory.mktemp("crates") / "smoke"
    done = command(project, place, "--agent", "A. Researcher")
    assert done.returncode == 0, done.stderr
    return place


class Contexts(requests.adapters.BaseAdapter):
    """Answers with the terms that crates name, without a network."""

    def send(self, request, **options):
        found = vocabs.RO_CRATE["@context"] | EARLIER
        if request.url.startswith(RUNS):
            found = {term: f"{RUNS}#{term}" for term in TERMS.split()}
        response = requests.Response()
        response.status_code, response.url, response.request = 200, request.url, request
        response.headers["Content-Type"] = "application/ld+json"
        response.raw = requests_cache.models.CachedHTTPResponse(
            json.dumps({"@context": found}).encode()
        )
        return response

    def close(self):
        pass


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """The cache that the validator reads."""
    path = tmp_path_factory.mktemp("contexts") / "cache.sqlite"
    if given := os.environ.get(CACHE):
        return shutil.copyfile(given, path)
    with requests_cache.CachedSession(str(path)) as session:
        session.mount("https://", Contexts())
        for url in ("https://w3id.org/ro/crate/1.1/context", f"{RUNS}/context"):
            session.get(url)
    return path


def issues(place, contexts):
    """What the validator says of a crate, to the recommended."""
    found = validate(
        ValidationSettings(
            rocrate_uri=str(place),
            profile_identifier="provenance-run-crate-0.5",
            requirement_severity=Severity.RECOMMENDED,
            offline=True,
            cache_path=str(contexts),
        )
    )
    return [(each.severity, each.message) for each in found.get_issues(Severity.RECOMMENDED)]


def test_the_validator_of_the_profile_finds_nothing(crate, contexts):
    found = issues(crate, contexts)
    print(f"{SHOWN}the validator of crates says {len(found)} times: {IMPOSSIBLE}")
    assert set(found) <= {(Severity.RECOMMENDED, IMPOSSIBLE)}, found


def test_the_validator_sees_what_is_wrong(crate, contexts, tmp_path):
    broken = shutil.copytree(crate, tmp_path / "broken")
    content = json.loads((broken / METADATA).read_text())
    for each in content["@graph"]:
        if each["@type"] == "ControlAction":
            del each["instrument"]
    (broken / METADATA).write_text(json.dumps(content))
    assert any(severity == Severity.REQUIRED for severity, _ in issues(broken, contexts))


def test_another_tool_reads_what_ran(crate, project):
    found = ROCrate(crate)
    results = _manifests(project)
    actions = {each.id: each for each in found.get_by_type("CreateAction")}
    assert len(actions) == len(results) + 1
    for path in results:
        place = path.relative_to(project.folder).as_posix()
        account = record.read(Path(str(path).replace(MANIFEST, RECORD)))
        action = actions[f"#run/{place}"]
        settings, *inputs = [action["object"]] if _is_one(action["object"]) else action["object"]
        assert {each.id: each["sha256"] for each in inputs} == account.inputs
        assert json.loads(settings["value"]) == account.job["settings"]
        made, *ends = [action["result"]] if _is_one(action["result"]) else action["result"]
        assert made.id == place and made["sha256"] == sha256(path)
        looked_at = account.job["stage"].startswith(LOOKED_AT)
        wanted = {str(path.parent / name) for name in manifest.read(path).files if looked_at}
        assert {str(project.folder / each.id) for each in ends} == wanted, place
        assert action["startTime"][:19] == account.started[:19]
        assert action["agent"]["name"] == "A. Researcher"
        told = {each["name"]: each["value"] for each in action["environment"]}
        assert told.items() >= {k: v for k, v in account.packages.items() if v}.items()
    (drawn,) = [each for each in actions.values() if each.id == "#run"]
    names = {each.id for each in drawn["result"]}
    assert {"figures/smoke/fig04.pdf", "results/smoke/measurements.csv", BROWSED} <= names
    assert found.mainEntity.id == "Snakefile"
    steps = {step["name"] for step in found.mainEntity["step"]}
    assert len(steps) == len(found.get_by_type("HowToStep")) > 4


def test_what_people_read_goes_along(crate, project):
    found = ROCrate(crate)
    parts = {each.id: each for each in found.root_dataset["hasPart"]}
    documents = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert len(documents) > 5
    for name in (*documents, "README.md", "ARTIFACT.md", BROWSED, OF_SNAKEMAKE):
        assert parts[name]["sha256"] == sha256(project.folder / name) == sha256(crate / name), name
        assert parts[name]["description"], name
    assert parts["docs/provenance.md"]["description"] == "Where a number comes from"
    actions = [each for each in found.get_by_type("CreateAction") if each.id != "#run"]
    makers = {
        each.id: action.id
        for action in actions
        for each in ([action["result"]] if _is_one(action["result"]) else action["result"])
    }
    assert makers[BROWSED] == "#run/results/smoke/index.manifest.json"
    assert makers["figures/smoke/fig04.pdf"] == "#run/figures/smoke/fig04.manifest.json"
    assert not {OF_SNAKEMAKE, "README.md", "docs/results.md"} & makers.keys()


def test_a_crate_holds_of_pages_what_there_is(project, tmp_path):
    """A page without a record names no job; other bytes than its record has are a problem."""
    names = [f"results/smoke/index.{name}" for name in (MANIFEST, RECORD)]
    with project.edited(BROWSED, OF_SNAKEMAKE, "ARTIFACT.md", *names) as (page, *others):
        page.write_text(page.read_text() + " ")
        done = command(project, tmp_path / "changed")
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and BROWSED in done.stderr
        for path in others:
            path.unlink()
        done = command(project, tmp_path / "few")
        assert done.returncode == 0, done.stderr
        assert "says what is here" in command(project, tmp_path / "few", "--verify").stdout
    told = {each.id: each for each in ROCrate(tmp_path / "few").get_entities()}
    assert not {OF_SNAKEMAKE, "ARTIFACT.md", f"#run/{names[0]}"} & told.keys()
    assert told[BROWSED]["sha256"] == sha256(tmp_path / "few" / BROWSED)


def _is_one(value):
    return not isinstance(value, list)


def _manifests(project):
    """Of all results, in a folder of their own or in a shared one."""
    tops = [project.folder / top / "smoke" for top in ("results", "figures")]
    return [path for top in tops for path in top.rglob(f"*{MANIFEST}")]


def test_equal_results_give_equal_crates_and_a_crate_is_verified(crate, project, tmp_path):
    again = tmp_path / "again.zip"
    assert command(project, again, "--agent", "A. Researcher").returncode == 0
    done = command(project, again, "--verify")
    assert done.returncode == 0 and "says what is here" in done.stdout, done.stdout
    shutil.unpack_archive(again, tmp_path / "again")
    for path in crate.rglob("*"):
        other = tmp_path / "again" / path.relative_to(crate)
        assert path.is_dir() or path.read_bytes() == other.read_bytes(), path


def test_what_differs_from_a_crate_is_named(crate, project, tmp_path):
    other = shutil.copytree(crate, tmp_path / "other")
    picture = "figures/smoke/fig04.png"
    (other / picture).write_bytes(b"another")
    (other / "beside").touch()
    done = command(project, other, "--verify")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"wrong: {picture} has other bytes in the crate than the crate says",
        "wrong: beside lies in the crate, which does not name it",
        "2 things differ",
    ]
    with project.edited("config/quantizers.yaml") as (path,):
        project.replace(path, "damping: 0.05", "damping: 0.06")
        done = command(project, crate, "--verify")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "wrong: config/quantizers.yaml differs from the one here in sha256",
        "1 things differ",
    ]
    (tmp_path / "none").mkdir()
    for place in (tmp_path / "none", tmp_path / "absent", project.folder / "LICENSE"):
        done = command(project, place, "--verify")
        assert done.returncode == 1 and done.stderr.startswith("error: "), done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_forged_or_damaged_crate_is_named(crate, project, tmp_path):
    forged = shutil.copytree(crate, tmp_path / "forged")
    content = json.loads((forged / METADATA).read_text())
    content["@graph"].insert(0, {"@id": "#maker", "@type": "Organization", "name": "FORGED"})
    content["@context"], content["more"] = "https://other.example/context", 1
    outside = {"@id": "../../secret", "@type": "File", "sha256": "0" * 64}
    content["@graph"] += [outside, {"@id": "x" * 5000, "sha256": "0" * 64}]
    (forged / METADATA).write_text(json.dumps(content))
    said = command(project, forged, "--verify")
    for words in ("tells twice", "@context of the crate differs", "more of", "leads out of"):
        assert words in said.stdout, said.stdout + said.stderr
    assert said.returncode == 1 and not said.stderr
    packed = tmp_path / "packed.zip"
    assert command(project, packed, "--agent", "A. Researcher").returncode == 0
    whole = packed.read_bytes()
    for harm in (whole[:-100], whole[:5000] + b"harm" + whole[5004:], b""):
        packed.write_bytes(harm)
        done = command(project, packed, "--verify")
        assert done.returncode == 1 and done.stderr.count("\n") <= 1, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
    for asked, words in (
        (["nonex/..", "--agent", "B"], "is there already"),
        ([tmp_path / "new", "--agent", "a\nb"], "can be printed"),
        ([crate, "--verify", "--agent", "B"], "leave it or --verify out"),
    ):
        done = command(project, *asked)
        assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_no_crate_is_made_of_what_is_damaged_or_over_what_is_there(project, tmp_path):
    assert "is there already" in command(project, tmp_path).stderr
    loss = next((project.folder / "results/smoke/evaluate").rglob(MANIFEST))
    place = str(loss.relative_to(project.folder))
    for name, content in ((place, b"{}"), (place.replace(MANIFEST, RECORD), b"{}")):
        with project.edited(name) as (path,):
            path.write_bytes(content)
            done = command(project, tmp_path / "new")
        assert done.returncode == 1 and str(Path(place).parent) in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "new").exists()


def test_a_crate_names_nobody_and_no_place_of_the_machine(crate, project):
    text = (crate / METADATA).read_text()
    assert str(project.folder) not in text and str(Path.home()) not in text
    host = os.uname().nodename
    assert len(host) <= 4 or host not in text
    assert manifest.read(crate / "results/smoke/corpus/main" / MANIFEST).files

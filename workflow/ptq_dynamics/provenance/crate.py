"""RO-Crates of a scale's results and jobs: Provenance Run Crate (Workflow Run RO-Crate 0.5)."""

import datetime
import json
import mimetypes
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

import yaml
from rocrate.model.contextentity import ContextEntity
from rocrate.model.entity import Entity
from rocrate.rocrate import ROCrate

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.engine.record import Record
from ptq_dynamics.provenance.archive import DERIVED, Archive, Result

PROFILES = (
    *(f"https://w3id.org/ro/wfrun/{kind}/0.5" for kind in ("process", "workflow", "provenance")),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
ENGINE = "https://snakemake.github.io"
DONE = {"actionStatus": "http://schema.org/CompletedActionStatus"}
BESIDE = ("LICENSE", "NOTICE", "*.cff", "*.toml", "ARTIFACT.md", "docs/**/*.md")
ENDS = (*DERIVED, "report.")  # stages whose files the crate has


def link(entity: Entity, key: str, others: Iterable[Entity]) -> None:
    """Add other entities to a property, each once."""
    if distinct := list({other.id: other for other in others}.values()):
        entity.append_to(key, distinct, compact=True)


class Crate(ROCrate):  # type: ignore[misc]
    """A crate with methods that add its entities and files."""

    def entity(self, name: str, kind: str, /, **properties: object) -> Entity:
        """Add an entity that is no file, or replace the entity of this name."""
        return self.add(ContextEntity(self, name, {"@type": kind, **properties}))

    def file(self, path: Path, /, **properties: object) -> Entity:
        """Add a file with its size and digest, once."""
        place = path.as_posix()
        if quote(place) in self:
            return self.get(quote(place))
        kind = mimetypes.guess_type(place)[0] or "text/plain"
        content: dict[str, object] = {"name": place, "encodingFormat": kind, "sha256": sha256(path)}
        content |= {"contentSize": str(path.stat().st_size), **properties}
        return self.add_file(path, place, properties=content)

    def files(self, *patterns: str) -> list[Entity]:
        """Add the files of the checkout that match patterns."""
        paths = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
        return [self.file(path) for path in sorted(paths)]


def write_crate(scale: str, place: Path) -> int:
    """Write the crate of a scale to a new folder or a .zip file; return the number of jobs."""
    if place.exists():
        raise Problem(f"{place} exists; remove it, or name another place")
    archive = Archive.of_scale(scale)
    results = list(archive.in_order())
    if archive.damaged or not results:
        raise Problem((archive.damaged or [f"nothing is built; run make figures SCALE={scale}"])[0])
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    crate = Crate(version="1.1")  # of RO-Crate, as the profile's validator requires
    crate.metadata.extra_contexts.append("https://w3id.org/ro/terms/workflow-run/context")
    root, licence = crate.root_dataset, f"https://spdx.org/licenses/{about['license']}"
    maker = about["authors"][0]["name"]
    agent = crate.entity("#maker", "Organization", name=maker, url=about["url"])
    crate.name = f"{about['title']}: results of scale {scale}"
    crate.description = f"Figures, tables, manifests and records of {len(results)} jobs"
    crate.license = crate.entity(licence, "CreativeWork", name=about["license"], url=licence)
    crate.publisher = root["author"] = agent
    times = [_times(result.record) for result in results]
    ran = {**DONE, "agent": agent, "startTime": min(times)[0], "endTime": max(t for _, t in times)}
    root["datePublished"] = ran["endTime"]
    for page in PROFILES:
        profile = crate.entity(page, "CreativeWork", name=page, version=page.rpartition("/")[2])
        link(root, "conformsTo", [profile])
    link(crate.metadata, "conformsTo", [profile])
    language = crate.entity(f"{ENGINE}/#", "ComputerLanguage", name="Snakemake", url=ENGINE)
    kinds = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
    workflow = crate.mainEntity = crate.file(
        Path("Snakefile"),
        **{"@type": kinds, "name": about["title"], "version": about["version"]},
        url=about["url"],
        programmingLanguage=language,
        conformsTo=crate.entity(BIOSCHEMAS, "CreativeWork", name="Bioschemas workflow profile"),
    )
    crate.file(Path("README.md"), about=root)
    crate.files(*BESIDE, "workflow/Snakefile", "workflow/rules/*.smk")
    configuration = crate.files("config/**/*.yaml", "envs/*.*")
    controls = [_control(crate, workflow, result, agent) for result in results]
    drawn = [file for result in results for file in _ends(crate, result)]
    build = crate.entity("#run", "CreateAction", name="build", instrument=workflow, **ran)
    build["description"] = "from the first job to the last"
    link(build, "object", configuration)
    link(build, "result", drawn)
    link(workflow, "hasPart", crate.get_by_type("SoftwareApplication"))
    link(workflow, "step", crate.get_by_type("HowToStep"))
    engine = crate.entity(ENGINE, "SoftwareApplication", name="Snakemake", url=ENGINE)
    engine["softwareVersion"] = version("snakemake")
    organized = crate.entity("#engine-run", "OrganizeAction", name="Snakemake", **ran)
    organized["instrument"], organized["result"] = engine, build
    link(organized, "object", controls)
    link(root, "mentions", crate.get_by_type("CreateAction"))
    place.parent.mkdir(parents=True, exist_ok=True)
    crate.write_zip(place) if place.suffix == ".zip" else crate.write(place)
    return len(results)


def _control(crate: Crate, workflow: Entity, result: Result, agent: Entity) -> Entity:
    """Add the action of a result's job; return the action of the workflow's step."""
    account, own = result.record, f"#tool/{result.stage}"
    about = {"name": result.stage, "url": workflow["url"], "softwareVersion": workflow["version"]}
    tool = crate.entity(f"{workflow['url']}#{result.stage}", "SoftwareApplication", **about)
    step = crate.entity(f"{own}/step", "HowToStep", name=result.stage, workExample=tool)
    made = crate.file(Path(result.path))
    text = json.dumps(account.job["settings"], sort_keys=True, ensure_ascii=False)
    name = f"#settings/{result.path}"
    settings = crate.entity(name, "PropertyValue", name=f"settings of {result.label}", value=text)
    read = [crate.file(Path(path)) for path in account.inputs]
    accepted = "".join(f"; accepted: {acceptance.reason}" for acceptance in account.accepted)
    action = crate.entity(f"#run/{result.path}", "CreateAction", name=result.label, **DONE)
    action["description"] = f"made {result.path}{accepted}"
    action["startTime"], action["endTime"] = _times(account)
    action["instrument"], action["agent"] = tool, agent
    link(action, "object", [settings, *read])
    link(action, "result", [made, *_ends(crate, result)])
    crate.file(result.place, about=action)
    about = {"name": f"step of {result.label}", "instrument": step, "object": action, **DONE}
    return crate.entity(f"#control/{result.path}", "ControlAction", **about)


def _ends(crate: Crate, result: Result) -> list[Entity]:
    """Add the files of a figure, table, paper or page; other results are large."""
    made = result.record.manifest(Path(result.path))
    return [crate.file(made.file(name)) for name in made.files if result.stage.startswith(ENDS)]


def _times(account: Record) -> tuple[str, str]:
    """Return the start and the end of a job, UTC, in milliseconds."""
    start = datetime.datetime.fromisoformat(account.started)
    end = start + datetime.timedelta(seconds=account.seconds)
    return start.isoformat(timespec="milliseconds"), end.isoformat(timespec="milliseconds")

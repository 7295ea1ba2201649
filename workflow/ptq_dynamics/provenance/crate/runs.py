"""What a crate says of the jobs that ran: when, with what, on which machine, and what came out."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

from rocrate.model.entity import Entity

from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.record import Record
from ptq_dynamics.provenance.archive import DERIVED, Result
from ptq_dynamics.provenance.crate.graph import Graph
from ptq_dynamics.provenance.crate.workflow import Workflow, stage_of

# What people look at: what can be derived from raw results, and the page over it.
ENDS = (*DERIVED, "report.")
COMPLETED = "http://schema.org/CompletedActionStatus"
# What a job used, with the units that QUDT names.
UNITS = "http://qudt.org/vocab/unit"
USED = {"cpu_seconds": "SEC", "peak_memory": "BYTE"}


def began(record: Record) -> datetime.datetime:
    """When a job was started, UTC."""
    return datetime.datetime.fromisoformat(record.started)


def ended(record: Record) -> datetime.datetime:
    """When a job ended, UTC."""
    return began(record) + datetime.timedelta(seconds=record.seconds)


def time(moment: datetime.datetime) -> str:
    """A moment as crates have it, to the millisecond."""
    return moment.isoformat(timespec="milliseconds")


def add(
    graph: Graph,
    workflow: Workflow,
    result: Result,
    makers: Mapping[str, Result],
    agent: Entity,
) -> Entity:
    """The action of a result's job, which read what `makers` made; the step's action that took
    it."""
    account, stage = result.record, stage_of(result)
    tool = workflow.tool(stage)
    made = graph.file(Path(result.path))
    accepted = "".join(f"; accepted: {each.reason}" for each in account.accepted)
    settings = graph.add(
        f"#settings/{result.path}",
        "PropertyValue",
        name=f"settings of {result.label}",
        value=json.dumps(account.job["settings"], sort_keys=True, ensure_ascii=False),
    )
    graph.exemplify(tool.settings, [settings])
    graph.exemplify(tool.result, [made])
    read = [graph.file(Path(path)) for path in account.inputs]
    for path, each in zip(account.inputs, read, strict=True):
        graph.exemplify(workflow.reads(stage, stage_of(makers[path])), [each])
    action = graph.add(
        f"#run/{result.path}",
        "CreateAction",
        name=result.label,
        description=f"made {result.path}{accepted}",
        instrument=tool.tool,
        agent=agent,
        actionStatus=COMPLETED,
        startTime=time(began(account)),
        endTime=time(ended(account)),
        object=[settings, *read],
        result=[made, *ends(graph, result)],
        environment=_environment(graph, account),
        resourceUsage=_used(graph, result),
    )
    graph.file(result.place, about=action)
    return graph.add(
        f"#control/{result.path}",
        "ControlAction",
        name=f"step of {result.label}",
        instrument=tool.step,
        object=action,
        actionStatus=COMPLETED,
    )


def ends(graph: Graph, result: Result) -> list[Entity]:
    """The files of a figure, table, paper or page; none of other results, which are large."""
    if not stage_of(result).startswith(ENDS):
        return []
    made = manifest.read(Path(result.path))
    return [graph.file(made.file(name)) for name in made.files]


def whole(graph: Graph, workflow: Workflow, results: list[Result], agent: Entity) -> Entity:
    """The action of the workflow, from its first job to its last."""
    records = [each.record for each in results]
    return graph.add(
        "#run",
        "CreateAction",
        name="build",
        description=f"{len(results)} jobs, of which a later build may have made some again",
        instrument=workflow.entity,
        agent=agent,
        actionStatus=COMPLETED,
        startTime=time(min(map(began, records))),
        endTime=time(max(map(ended, records))),
    )


def organize(graph: Graph, workflow: Workflow, build: Entity, controls: list[Entity]) -> None:
    """The engine's action, which took the steps."""
    entity = graph.add(
        "#engine-run",
        "OrganizeAction",
        name="run of Snakemake",
        instrument=workflow.engine,
        agent=build["agent"],
        result=build,
        startTime=build["startTime"],
        endTime=build["endTime"],
        actionStatus=COMPLETED,
    )
    graph.link(entity, "object", controls)


def _environment(graph: Graph, account: Record) -> list[Entity]:
    """Libraries, code and machine, each told once for all jobs that had it."""
    machine, device = account.machine, account.device
    vector = f", {machine.vector}" if machine.vector else ""
    told = {
        **{name: version for name, version in account.packages.items() if version is not None},
        "Python": machine.python,
        "machine": f"{machine.system} {machine.architecture}, {machine.processor}{vector}, "
        f"{machine.cores} cores, {machine.memory} bytes of memory",
        "device": f"{device.kind} {device.name or ''}".strip(),
        "threads": str(account.threads),
        "processes": account.by,
    }
    if account.git is not None:
        changed = " with changes" if account.git.dirty else ""
        told["commit"] = f"{account.git.commit}{changed}"
    return [
        graph.add(f"#with/{name}/{value}", "PropertyValue", name=name, value=value)
        for name, value in told.items()
    ]


def _used(graph: Graph, result: Result) -> list[Entity]:
    return [
        graph.add(
            f"#used/{key}/{result.path}",
            "PropertyValue",
            name=key.replace("_", " "),
            propertyID=f"#{key}",
            value=str(getattr(result.record, key)),
            unitCode=f"{UNITS}/{unit}",
        )
        for key, unit in USED.items()
    ]

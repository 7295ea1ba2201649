"""What a crate says of the workflow before any run: its steps, their tools and parameters."""

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rocrate.model.entity import Entity

from ptq_dynamics.engine.checkout import PACKAGE, SOURCES
from ptq_dynamics.engine.fingerprint.versions import installed
from ptq_dynamics.provenance.archive import Result
from ptq_dynamics.provenance.citation import Citation
from ptq_dynamics.provenance.crate.graph import Graph

MAIN = Path("Snakefile")
ENGINE = "https://snakemake.github.io"
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"


@dataclass
class Tool:
    """A stage as a step of the workflow and the tool that takes it, with its parameters: the
    settings, the result, and what it reads by the stage that made that."""

    step: Entity
    tool: Entity
    settings: Entity
    result: Entity
    read: dict[str, Entity] = field(default_factory=dict)


class Workflow:
    """The workflow's file, its engine, and a tool for every stage of the results."""

    def __init__(self, graph: Graph, about: Citation) -> None:
        self._graph, self._about = graph, about
        language = graph.add(
            f"{ENGINE}/#language",
            "ComputerLanguage",
            name="Snakemake",
            identifier=ENGINE,
            url=ENGINE,
        )
        self.engine = graph.add(
            ENGINE,
            "SoftwareApplication",
            name="Snakemake",
            url=ENGINE,
            softwareVersion=installed("snakemake"),
        )
        self.entity = graph.file(
            MAIN,
            **{"@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]},
            name=about.title,
            version=about.version,
            url=about.url,
            programmingLanguage=language,
            conformsTo=graph.add(BIOSCHEMAS, "CreativeWork", name="Bioschemas workflow profile"),
        )
        self.configuration = self._parameter("#configuration", "Configuration", "File")
        self.pictures = self._parameter("#figures-and-tables", "Figures and tables", "File")
        self._graph.link(self.entity, "input", [self.configuration])
        self._graph.link(self.entity, "output", [self.pictures])
        self.tools = dict[str, Tool]()

    def tool(self, stage: str) -> Tool:
        """The tool of a stage, which comes after those that were asked for before."""
        if stage in self.tools:
            return self.tools[stage]
        does = description(stage)
        tool = self._graph.add(
            f"{self._about.url}#{stage}",
            "SoftwareApplication",
            name=stage,
            description=does,
            url=self._about.url,
            softwareVersion=self._about.version,
        )
        position = str(len(self.tools) + 1)
        step = self._graph.add(
            f"#step/{stage}", "HowToStep", name=does, position=position, workExample=tool
        )
        settings = self._parameter(f"#tool/{stage}/settings", "Settings", "Text")
        result = self._parameter(f"#tool/{stage}/result", "Result", "File")
        self._graph.link(tool, "input", [settings])
        self._graph.link(tool, "output", [result])
        self._graph.link(self.entity, "hasPart", [tool])
        self._graph.link(self.entity, "step", [step])
        self.tools[stage] = Tool(step, tool, settings, result)
        return self.tools[stage]

    def reads(self, stage: str, of: str) -> Entity:
        """The parameter by which a stage reads what another one makes."""
        tool, source = self.tool(stage), self.tool(of)
        if of not in tool.read:
            name = f"#tool/{stage}/from/{of}"
            tool.read[of] = self._parameter(name, f"Results of {of}", "File")
            self._graph.link(tool.tool, "input", [tool.read[of]])
            connection = self._graph.add(
                f"{name}/connection",
                "ParameterConnection",
                sourceParameter=source.result,
                targetParameter=tool.read[of],
            )
            self._graph.link(tool.step, "connection", [connection])
        return tool.read[of]

    def _parameter(self, name: str, label: str, kind: str) -> Entity:
        return self._graph.add(name, "FormalParameter", name=label, additionalType=kind)


def stage_of(result: Result) -> str:
    """The stage of a result: its module below the package."""
    return str(result.record.job["stage"])


@cache
def description(stage: str) -> str:
    """What a stage does: the first line of its module."""
    path = SOURCES / PACKAGE / Path(*stage.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
            return (text or stage).partition("\n")[0]
    return stage

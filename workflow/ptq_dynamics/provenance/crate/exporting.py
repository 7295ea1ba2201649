"""Fills a crate from the results of a scale, and writes it as a folder or a zip."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocrate.model.entity import Entity

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.provenance.archive import Archive, Result
from ptq_dynamics.provenance.citation import Citation
from ptq_dynamics.provenance.crate import runs
from ptq_dynamics.provenance.crate.graph import Graph
from ptq_dynamics.provenance.crate.workflow import Workflow

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
# What the workflow was and what it reads, beside its results: files, and all of an ending below
# folders.
BESIDE = ("LICENSE", "NOTICE", "CITATION.cff", "pyproject.toml")
CONFIGURATION = ("config/**/*.yaml", "envs/*.*")
RULES = ("workflow/Snakefile", "workflow/rules/*.smk")
# What tells of it all, each by its first heading.
DOCUMENTATION = ("README.md", "ARTIFACT.md", "docs/**/*.md")
LICENSES = "https://spdx.org/licenses"
ZIP = ".zip"


@dataclass(frozen=True)
class Export:
    """What a crate is made of: the scale's name and results, pages beside these with what they
    are, who made it (the maintainers where nobody is named)."""

    scale: str
    archive: Archive
    pages: Mapping[Path, str]
    about: Citation
    agent: str | None = None

    def graph(self) -> Graph:
        """The crate, equal for equal files; `Problem` where a record is damaged or lacks what it
        was made from."""
        results = _whole(self.archive)
        graph = Graph()
        maker = graph.add("#maker", "Organization", name=self.about.maker, url=self.about.url)
        agent = maker
        if self.agent is not None:
            agent = graph.add("#agent", "Person", name=self.agent, affiliation=maker)
        self._describe(graph, maker, results)
        workflow = Workflow(graph, self.about)
        graph.crate.mainEntity = workflow.entity
        for name in BESIDE:
            graph.file(Path(name))
        for pattern in RULES:
            _files(graph, pattern)
        for page, what in self.pages.items():
            graph.file(page, description=what)
        configuration = [each for pattern in CONFIGURATION for each in _files(graph, pattern)]
        graph.exemplify(workflow.configuration, configuration)
        makers = {each.path: each for each in results}
        build = runs.whole(graph, workflow, results, agent)
        controls = [runs.add(graph, workflow, each, makers, agent) for each in results]
        runs.organize(graph, workflow, build, controls)
        ends = [file for each in results for file in runs.ends(graph, each)]
        if not ends:
            raise Problem("no figure is drawn at this scale; make figures draws them")
        graph.exemplify(workflow.pictures, ends)
        graph.link(build, "object", configuration)
        graph.link(build, "result", ends)
        graph.link(graph.crate.root_dataset, "mentions", graph.crate.get_by_type("CreateAction"))
        graph.simplify()
        return graph

    def _describe(self, graph: Graph, maker: Entity, results: list[Result]) -> None:
        """The crate as a whole."""
        root = graph.crate.root_dataset
        graph.crate.name = f"{self.about.title}: results of scale {self.scale}"
        graph.crate.description = (
            f"{len(results)} results of scale {self.scale} with the jobs that made them: figures "
            "and tables, and of all else manifests (files with their digests) and records"
        )
        graph.crate.license = graph.add(
            f"{LICENSES}/{self.about.license}",
            "CreativeWork",
            name=self.about.license,
            url=f"{LICENSES}/{self.about.license}",
        )
        graph.crate.publisher = maker
        root["author"] = maker
        # When it was whole, so that equal results give equal crates.
        last = max(runs.ended(each.record) for each in results)
        root["datePublished"] = runs.time(last)
        for pattern in DOCUMENTATION:
            for path in _found(pattern):
                graph.file(path, description=_heading(path), about=root)
        profiles = [
            graph.add(name, "CreativeWork", name=label, version=name.rpartition("/")[2])
            for name, label in PROFILES.items()
        ]
        graph.link(root, "conformsTo", profiles)
        descriptor = graph.crate.metadata.properties()
        descriptor["conformsTo"] = [descriptor["conformsTo"]]
        graph.link(graph.crate.metadata, "conformsTo", profiles[-1:])


def _whole(archive: Archive) -> list[Result]:
    """All results, each after what it was made from, if nothing is damaged or lacks."""
    results, mend = list(archive.in_order()), "ptq-dynamics audit names all that is wrong"
    if not results:
        raise Problem("nothing is built at this scale; make figures builds it")
    if archive.read[1]:
        raise Problem(f"{archive.read[1][0]}; {mend}")
    made = {each.path: each.digest for each in results}
    for each in results:
        if not each.in_place or manifest.read(Path(each.path)).digest() != each.digest:
            raise Problem(f"{each.place} is not the record of {each.path}; {mend}")
        for path, digest in each.record.inputs.items():
            if made.get(path) != digest:
                raise Problem(f"{each.path} was made from another {path}, or it is gone; {mend}")
    return results


def _files(graph: Graph, pattern: str) -> list[Entity]:
    """All files of the checkout that a pattern finds."""
    return [graph.file(path) for path in _found(pattern)]


def _found(pattern: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted(ROOT.glob(pattern))]


def _heading(path: Path) -> str:
    """The first line of a page, which names it."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("#").strip()


def export(crate: Export, place: Path) -> int:
    """Write a crate to a new folder, or to a file that ends in .zip; how many jobs it tells of."""
    target = Path(os.path.abspath(place))
    if target.exists() or target.is_symlink():
        raise Problem(f"{place} is there already; name another place, or remove it")
    if crate.agent is not None and not crate.agent.isprintable():
        raise Problem(f"--agent is {crate.agent!r}; give a name of letters that can be printed")
    graph = crate.graph()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"crate{target.suffix}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            graph.crate.write_zip(made) if made.suffix == ZIP else graph.crate.write(made)
            shutil.move(made, target)
        except OSError as error:
            raise Problem(f"{place} cannot be written ({error.strerror})") from None
    return len(graph.crate.get_by_type("ControlAction"))

"""Which jobs a build has to run: those whose results are not current, and what depends on them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Site


class Due:
    """What is due among the jobs of a site.

    A job that depends on another one that is due ends at once when that came out as it was.
    """

    def __init__(self, site: Site, results: Results) -> None:
        self._site, self._results = site, results
        self._known = dict[str, bool]()

    def is_due(self, job: Job) -> bool:
        """Whether a job is due."""
        if job.manifest not in self._known:
            current = self._results.is_current(job.specified(), job.needs, job.paths)
            makers = [self._site.made[path] for path in job.needs]
            self._known[job.manifest] = not current or any(map(self.is_due, makers))
        return self._known[job.manifest]

    def find(self, targets: Iterable[Job]) -> tuple[list[Job], list[Job]]:
        """What is current and what is due, among targets and all they need."""
        current, due = list[Job](), list[Job]()
        for job in self._site.needed(targets):
            (due if self.is_due(job) else current).append(job)
        return current, due

    def files(self, jobs: Iterable[Job]) -> list[str]:
        """All files by which the results of some jobs were found current."""
        jobs = list(jobs)
        table = codes.table_of(self._site.results)
        # The folder too, in which other entries come and go.
        entries = [str(table), *(str(table / f"{code}.json") for code in codes.of(jobs))]
        return [*entries, *(path for job in jobs for path in self._results.files(job.paths))]

    def note(self, others: Callable[[], Iterable[Job]] = tuple) -> str | None:
        """Have records of what is current say where the code of their jobs stands now, and the
        scale's table, what it is; what no record is of any more goes out of it. What lacks there
        besides is looked for among `others`. Why the table could not be written, if so: no result
        depends on it."""
        table = codes.table_of(self._site.results)
        used = codes.of(self._site.made[path] for path, is_due in self._known.items() if not is_due)
        named = codes.named(map(Path, self._site.folders))
        try:
            self._results.note_moves()
            codes.add(table, used)
            if lost := named - codes.known(table).keys():
                found = codes.of(others())
                codes.add(table, {code: found[code] for code in lost & found.keys()})
            codes.forget(table, named | used.keys())
        except (OSError, Problem) as error:
            return f"what code results are of could not be noted ({error}); none depends on that"
        return None

    def accepted(self, job: Job) -> str:
        """Why a result counts as current that was not made again; empty of all others."""
        return self._results.accepted.get(job.manifest, "")

    def is_damaged(self, job: Job) -> bool:
        """Whether nothing but bytes of the result's files is not as its manifest says, which the
        job itself may not notice."""
        return job.manifest in self._results.damaged

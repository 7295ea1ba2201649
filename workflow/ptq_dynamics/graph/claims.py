"""The job that judges claims over what the chosen figures measure."""

from collections.abc import Iterable, Sequence
from functools import cache

from ptq_dynamics.claims.names import DISTANCE
from ptq_dynamics.claims.settings import CLAIMS, Branched, Claim, ClaimsSettings, Inequality, Term
from ptq_dynamics.config import Calibrated, Figure, Landscapes, claims, require
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import ShownRun
from ptq_dynamics.graph.figures import Figures
from ptq_dynamics.graph.geometry import Geometry
from ptq_dynamics.graph.measuring import Measuring
from ptq_dynamics.graph.queries import (
    by_loss,
    check,
    merged,
    metrics,
    named,
    narrowed,
    place_of,
    resolved,
)
from ptq_dynamics.graph.site import Site
from ptq_dynamics.graph.trajectories import Trajectories
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train.settings import TRAINING

FILE = "config/claims.yaml"
STEM = CLAIMS.removesuffix(".json")


class Claims:
    """Claims, each over the trajectories, quantizers and metrics of the figure it is about, at the
    seeds and calibration sets of that; what a scale or a choice of figures leaves out is not
    measured."""

    def __init__(
        self,
        site: Site,
        trajectories: Trajectories,
        measuring: Measuring,
        geometry: Geometry,
        drawn: Figures,
        written: dict[str, Figure],
    ) -> None:
        self._site, self._trajectories, self._measuring = site, trajectories, measuring
        self._geometry, self._figures, self._written = geometry, drawn, written
        self.paths = Paths.at(site.results, STEM)
        self.files = [f"{site.results}/{CLAIMS}"]

    @cache
    def judge(self) -> Job:
        """The verdicts on all claims; raises `Problem` where a claim names what its figure has
        not."""
        needed = Needed()
        written = self._site.config.claims
        judged = [self._claim(name, each, needed) for name, each in written.items()]
        settings = ClaimsSettings(
            tuple(judged),
            tuple(needed.series),
            tuple(needed.runs.values()),
            tuple(needed.branches.values()),
            self._site.config.scale.description,
        )
        folder, inputs = self._site.results, needed.inputs
        job = Job("claims.judge", STEM, folder, inputs, settings, stem=STEM, files=(CLAIMS,))
        return self._site.add(job)

    def _claim(self, name: str, claim: claims.Claim, needed: "Needed") -> Claim:
        found, small = list[Inequality](), dict[str, None]()
        require(f"{FILE}: {name}.figure", "figure", [claim.figure], self._written)
        for number, inequality in enumerate(claim.inequalities):
            place = f"{FILE}: {name}.inequalities.{number}"
            shown = [inequality.figure or claim.figure]
            require(f"{place}.figure", "figure", shown, self._written)
            if inequality.also is not None:
                require(f"{place}.also", "figure", [inequality.also], self._written)
                shown.append(inequality.also)
            for written in inequality.single():
                check(place, inequality, written, shown, merged(self._written, shown))
                missing = inequality.unmeasured or self._not_chosen(shown)
                figure = merged(self._written, shown)
                one = written
                if missing is None:
                    figure = merged(self._site.config.figures, shown)
                    one = resolved(written, figure)
                    missing = self._left_out(one, figure) or self._in_small(
                        inequality, narrowed(figure, inequality, one, [])
                    )
                if missing is None:
                    query = narrowed(figure, inequality, one, self._trunks(figure, one))
                    seeds = self._add(query, inequality, one, needed)
                    runs = self._figures.runs(query)
                    small |= {each.stands_for: None for each in runs if each.stands_for}
                else:
                    seeds = ()
                found.append(self._inequality(inequality, one, shown[0], figure, missing, seeds))
        return Claim(name, claim.number, claim.says, tuple(found), tuple(small))

    def _not_chosen(self, shown: Sequence[str]) -> str | None:
        """Why nothing of some figures is measured in this build."""
        for name in shown:
            if name not in self._site.config.figures:
                return f"figure {name} is left out at {self._site.config.scale.description}"
            if name not in self._figures.chosen:
                return f"figure {name} was not chosen"
        return None

    def _left_out(self, one: claims.Single, figure: Figure) -> str | None:
        """Why an inequality cannot be measured: what this scale leaves out."""
        gone = [name for name in named(one) if name not in figure.trajectories]
        scale = self._site.config.scale.description
        return f"{gone[0]} is left out at {scale}" if gone else None

    def _in_small(self, inequality: claims.Inequality, query: Figure) -> str | None:
        """Why it cannot be measured of miniatures, where the scale has these."""
        small = any(run.stands_for for run in self._figures.runs(query))
        return inequality.unmeasured_in_small if small else None

    def _trunks(self, figure: Figure, one: claims.Single) -> list[str]:
        """Names of the trunks, among a figure's trajectories, of what its terms read by loss."""
        there = figure.trajectories
        terms = [term for term in one.terms if by_loss(term) or term.against]
        read = {name for term in terms for name in (*term.trajectories, *term.others)}
        return [
            run.trunk
            for run in self._figures.runs(figure)
            if run.name in read and run.trunk in there and run.trunk is not None
        ]

    def _add(
        self, query: Figure, inequality: claims.Inequality, one: claims.Single, needed: "Needed"
    ) -> tuple[int, ...]:
        """Add what an inequality reads to what the job needs; its seeds."""
        series, inputs = self._figures.measured(query)
        needed.add(series, inputs)
        asked = metrics(inequality, one)
        for run in self._figures.runs(query):
            if run.trunk is not None and run.at is not None:
                needed.branches[run.name] = Branched(run.name, run.trunk, run.at)
            if not asked.isdisjoint(TRAINING):
                needed.runs[run.label] = run
                needed.inputs[run.label] = self._trajectories.manifests(run.name, run.seed)
        names = [name for name in named(one) if name in query.trajectories]
        if DISTANCE in asked and isinstance(query, Landscapes):
            back = self._site.timeline.steps(query.landscape.previous)
            for name, quantizer in ((n, q) for n in names for q in query.quantizers):
                used = self._figures.used(quantizer)
                job = self._geometry.landscape(name, used, back)
                one_series = self._measuring.series(name, used)
                needed.add([one_series], {f"landscape {name} {used}": [job.manifest]})
            # Of several seeds it shows the first.
            return (self._site.timeline.seeds_of(names[0])[0],)
        found = [self._figures.seeds(query, name) for name in names]
        common = tuple(seed for seed in found[0] if all(seed in seeds for seeds in found))
        return common or found[0][:1]

    def _inequality(
        self,
        inequality: claims.Inequality,
        one: claims.Single,
        shown: str,
        figure: Figure,
        missing: str | None,
        seeds: tuple[int, ...],
    ) -> Inequality:
        known = self._site.config.quantizers
        names = [one.quantizer, *(term.quantizer for term in one.terms)]
        used = [self._figures.used(name) for name in names if name and name != FULL_PRECISION]
        left, right = one.left, one.right
        return Inequality(
            says=one.says,
            figure=shown,
            quantizer=one.quantizer,
            metric=inequality.metric,
            left=None if left is None else self._term(left, inequality, one, figure),
            above=inequality.relation == "above",
            right=right if isinstance(right, float) else self._term(right, inequality, one, figure),
            times=inequality.times,
            tolerance=inequality.tolerance,
            because=inequality.because,
            published=one.published,
            seeds=seeds,
            calibrated=any(isinstance(known[name], Calibrated) for name in used),
            missing=missing,
        )

    def _term(
        self, term: claims.Term, inequality: claims.Inequality, one: claims.Single, figure: Figure
    ) -> Term:
        metric = term.metric or inequality.metric
        quantizer = claims.quantized(metric, term.quantizer or one.quantizer)
        draws = self._figures.draws(figure, quantizer) if quantizer else ()
        less, per = (
            None if each is None else self._term(each, inequality, one, figure)
            for each in (term.less, term.per)
        )
        # Landscapes are of the first calibration set.
        draws = draws[:1] if metric == DISTANCE else draws
        at = place_of(term.at)
        return Term(
            term.trajectories, at, term.take, metric, draws, term.against, less=less, per=per
        )


class Needed:
    """The series, runs, branches and inputs of a job, each once."""

    def __init__(self) -> None:
        self.series = dict[Series, None]()
        self.runs = dict[str, ShownRun]()
        self.branches = dict[str, Branched]()
        self.inputs = dict[str, list[str]]()

    def add(self, series: Iterable[Series], inputs: dict[str, list[str]]) -> None:
        """Add some series and their inputs."""
        self.series |= dict.fromkeys(series)
        self.inputs |= inputs

"""The job that judges claims on measurements of the chosen figures."""

from collections.abc import Iterable, Mapping
from functools import cache

from ptq_dynamics.claims.beyond import EVERY
from ptq_dynamics.claims.definitions import Claim, ClaimsSettings, Drawn, Told
from ptq_dynamics.config import Figure, require
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.measure.series import in_order
from ptq_dynamics.plan.figure_jobs import FigureJobs
from ptq_dynamics.plan.planned_runs import PlannedRun
from ptq_dynamics.plan.releases import PlannedRelease
from ptq_dynamics.plan.site import Planner, Site


class ClaimJobs(Planner):
    """Claims on the data of their figures, at the seeds of the first one. `configured` are all
    figures, also those that the scale leaves out."""

    def __init__(self, site: Site, figures: FigureJobs, configured: Mapping[str, Figure]) -> None:
        super().__init__(site)
        self.figures, self.configured = figures, configured

    @cache
    def judge(self) -> Job:
        """Return the job that judges all claims; `Problem` if a claim names an unknown figure."""
        claims, jobs = dict[str, Told](), dict[str, Job]()
        for claim in EVERY:
            place = f"workflow/ptq_dynamics/claims: {claim.name}"
            require(f"{place}.figures", "figure", claim.figures, self.configured)
            groups = {self.configured[name].group for name in claim.figures}
            if groups != {None} and not {*claim.figures} <= {*self.config.chosen}:
                continue
            claims[claim.name] = self._at_scale(claim)
            if claims[claim.name].unmeasured is None:
                jobs |= {name: self.figures.figure(name) for name in claim.figures}
        drawn = dict[str, Drawn]()
        for name, job in jobs.items():
            figure: FigureSettings = job.settings
            draws = {quantizer.name: quantizer.draws for quantizer in figure.quantizers}
            runs = tuple(sorted(figure.runs, key=lambda run: run.label))
            drawn[name] = Drawn(series=in_order(figure.series), runs=runs, draws=draws)
        settings = ClaimsSettings(
            claims=claims,
            figures=drawn,
            scale=self.scale.description,
            numbers=self._numbers({run.name for data in drawn.values() for run in data.runs}),
        )
        inputs = {label: paths for job in jobs.values() for label, paths in job.inputs.items()}
        return self.make("judge", "claims.judge", "claims", inputs, settings)

    def _numbers(self, names: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the paper's peak rates and weight decays of runs, and their tokens here."""
        rates, decays = dict[str, float](), dict[str, float]()
        tokens, per_parameter = dict[str, float](), dict[str, float]()
        for name in sorted(names):
            match self.planned[name].followed:
                case PlannedRun(trunk=trunk) as run:
                    tokens[name] = run.tokens_at(run.last)
                    per_parameter[name] = tokens[name] / run.parameters
                    rates[name] = trunk.entry.peak_lr
                    decays[name] = trunk.published_optimizer.weight_decay
                case PlannedRelease(entry=entry) if entry.schedule is not None:
                    rates[name] = entry.schedule.peak
        return {
            "peak_lr": rates,
            "weight_decay": decays,
            "tokens": tokens,
            "tokens_per_parameter": per_parameter,
        }

    def _at_scale(self, claim: Claim) -> Told:
        """Return a claim with its seeds and miniatures, or why it is not measured."""
        left_out = f"is left out at {self.scale.description}"
        for known, why in ((self.config.figures, left_out), (self.config.chosen, "was not chosen")):
            if gone := [name for name in claim.figures if name not in known]:
                return Told(says=claim.says, unmeasured=f"figure {gone[0]} {why}")
        figure = self.config.figures[claim.figures[0]]
        shown = [run for name, run in self.planned.items() if name in figure.trajectories]
        small = dict.fromkeys(trajectory.followed.origin.stands_for for trajectory in shown)
        seeds = [trajectory.seeds_shown(figure.headline) for trajectory in shown]
        common = tuple(seed for seed in seeds[0] if all(seed in others for others in seeds))
        miniatures = tuple(filter(None, small))
        return Told(says=claim.says, seeds=common or seeds[0][:1], miniatures=miniatures)

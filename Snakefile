# The rules connect the configuration in config/ and the stages in
# workflow/ptq_dynamics/. `plan` is that of workflow/rules/common.smk.
from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"


pathvars:
    results=f"results/{SCALE}",
    figures=f"figures/{SCALE}",
    paper=f"paper/{SCALE}",


wildcard_constraints:
    **dict.fromkeys(re.findall(r"{(\w+)}", str(RULES)), "[^/]+"),


rule figures:
    default_target: True
    input:
        [job.manifest for job in plan.targets()],
    localrule: True


rule claims:
    input:
        "<results>/claims.manifest.json",
    localrule: True


rule tables:
    input:
        "<results>/tables/manifest.json",
    localrule: True


rule paper:
    input:
        "<paper>/manifest.json",
    localrule: True


rule backends:
    input:
        "<results>/backends/manifest.json",
    localrule: True


rule prefetch:
    input:
        lambda wildcards: or_exit(plan.prefetched),
    localrule: True


include: "workflow/rules/corpora.smk"
include: "workflow/rules/trajectories.smk"
include: "workflow/rules/measurements.smk"
include: "workflow/rules/outcomes.smk"

# The loss around checkpoints: curvature, landscapes, and where trajectories lie.


CURVATURE = Paths.at(plan.site.places("curvature"))
curvature_job = lambda w: plan.geometry.curvature(
    w.trajectory, w.probe, w.shard, int(w.seed)
)


rule curvature:
    input:
        lambda w: needs(curvature_job(w)),
    output:
        update(CURVATURE.published),
    log:
        CURVATURE.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("curvature")
    resources:
        **asks(curvature_job),
        devices=plan.resources.ask("curvature").get("gpu", 1),
    params:
        job=lambda w: handover.file(curvature_job(w)),
    shell:
        RUN_ON_DEVICE


LANDSCAPE = Paths.at(plan.site.places("landscape"))
landscape_job = lambda w: plan.geometry.landscape(
    w.trajectory, w.quantizer, int(w.steps), int(w.seed)
)


rule landscape:
    input:
        lambda w: needs(landscape_job(w)),
    output:
        update(LANDSCAPE.published),
    log:
        LANDSCAPE.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("landscape")
    resources:
        **asks(landscape_job),
        devices=plan.resources.ask("landscape").get("gpu", 1),
    params:
        job=lambda w: handover.file(landscape_job(w)),
    shell:
        RUN_ON_DEVICE


COMPONENTS = Paths.at(plan.site.places("components"))
components_job = lambda w: plan.figures.components(w.figure)


rule components:
    input:
        lambda w: needs(components_job(w)),
    output:
        update(COMPONENTS.published),
    log:
        COMPONENTS.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("components")
    resources:
        **asks(components_job),
    params:
        job=lambda w: handover.file(components_job(w)),
    shell:
        RUN

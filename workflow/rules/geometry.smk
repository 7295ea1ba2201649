# The loss around checkpoints: curvature, landscapes, and where trajectories lie.


rule curvature:
    input:
        lambda w: plan.geometry.curvature(
            w.trajectory, w.probe, w.shard, int(w.seed)
        ).needs,
    output:
        f"{RESULTS}/curvature/{{trajectory}}/seed-{{seed}}/{{probe}}/{{shard}}/manifest.json",
        f"{RESULTS}/curvature/{{trajectory}}/seed-{{seed}}/{{probe}}/{{shard}}/record.json",
    log:
        f"{RESULTS}/curvature/{{trajectory}}/seed-{{seed}}/{{probe}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.geometry.curvature(
            w.trajectory, w.probe, w.shard, int(w.seed)
        ).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule landscape:
    input:
        lambda w: plan.geometry.landscape(
            w.trajectory, w.quantizer, int(w.steps), int(w.seed)
        ).needs,
    output:
        f"{RESULTS}/landscape/{{trajectory}}/seed-{{seed}}/{{quantizer}}/back-{{steps}}/manifest.json",
        f"{RESULTS}/landscape/{{trajectory}}/seed-{{seed}}/{{quantizer}}/back-{{steps}}/record.json",
    log:
        f"{RESULTS}/landscape/{{trajectory}}/seed-{{seed}}/{{quantizer}}/back-{{steps}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.geometry.landscape(
            w.trajectory, w.quantizer, int(w.steps), int(w.seed)
        ).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule components:
    input:
        lambda w: plan.figures.components(w.figure).needs,
    output:
        f"{RESULTS}/components/{{figure}}/manifest.json",
        f"{RESULTS}/components/{{figure}}/record.json",
    log:
        f"{RESULTS}/components/{{figure}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.figures.components(w.figure).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

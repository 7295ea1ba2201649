# The loss around checkpoints: curvature, landscapes, and where trajectories lie.


rule curvature:
    input:
        lambda w: plan.curvature(w.trajectory, w.probe, w.shard).needs,
    output:
        f"{plan.results}/curvature/{{trajectory}}/{{probe}}/{{shard}}/manifest.json",
        f"{plan.results}/curvature/{{trajectory}}/{{probe}}/{{shard}}/record.json",
    log:
        f"{plan.results}/curvature/{{trajectory}}/{{probe}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.curvature(w.trajectory, w.probe, w.shard).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule landscape:
    input:
        lambda w: plan.landscape(w.trajectory, w.quantizer, int(w.steps)).needs,
    output:
        f"{plan.results}/landscape/{{trajectory}}/{{quantizer}}/back-{{steps}}/manifest.json",
        f"{plan.results}/landscape/{{trajectory}}/{{quantizer}}/back-{{steps}}/record.json",
    log:
        f"{plan.results}/landscape/{{trajectory}}/{{quantizer}}/back-{{steps}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.landscape(w.trajectory, w.quantizer, int(w.steps)).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule components:
    input:
        lambda w: plan.components(w.figure).needs,
    output:
        f"{plan.results}/components/{{figure}}/manifest.json",
        f"{plan.results}/components/{{figure}}/record.json",
    log:
        f"{plan.results}/components/{{figure}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.components(w.figure).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

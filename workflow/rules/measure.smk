# Losses of full-precision and quantized checkpoints, and the table of all measurements.


rule evaluate:
    input:
        lambda w: plan.losses.evaluate(
            w.trajectory, w.method, w.shard, int(w.seed)
        ).needs,
    output:
        f"{RESULTS}/evaluate/{{trajectory}}/seed-{{seed}}/{{method}}/{{shard}}/manifest.json",
        f"{RESULTS}/evaluate/{{trajectory}}/seed-{{seed}}/{{method}}/{{shard}}/record.json",
    log:
        f"{RESULTS}/evaluate/{{trajectory}}/seed-{{seed}}/{{method}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.losses.evaluate(
            w.trajectory, w.method, w.shard, int(w.seed)
        ).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule collect:
    input:
        plan.figures.collect().needs,
    output:
        f"{RESULTS}/measurements.csv",
        f"{RESULTS}/measurements.manifest.json",
        f"{RESULTS}/measurements.record.json",
    log:
        f"{RESULTS}/.measurements.log",
    conda:
        "../../envs/main.yaml"
    params:
        job=plan.figures.collect().spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

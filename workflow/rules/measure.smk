# Losses of full-precision and quantized checkpoints, and the tidy tables made of them.


rule evaluate:
    input:
        lambda w: plan.evaluate(w.trajectory, w.method, w.shard).needs,
    output:
        f"{plan.results}/evaluate/{{trajectory}}/{{method}}/{{shard}}/manifest.json",
        f"{plan.results}/evaluate/{{trajectory}}/{{method}}/{{shard}}/record.json",
    log:
        f"{plan.results}/evaluate/{{trajectory}}/{{method}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.evaluate(w.trajectory, w.method, w.shard).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule measure:
    input:
        lambda w: plan.measure(w.trajectory, w.method).needs,
    output:
        f"{plan.results}/measure/{{trajectory}}/{{method}}/manifest.json",
        f"{plan.results}/measure/{{trajectory}}/{{method}}/record.json",
    log:
        f"{plan.results}/measure/{{trajectory}}/{{method}}/.log",
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: plan.measure(w.trajectory, w.method).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule collect:
    input:
        plan.collect().needs,
    output:
        f"{plan.results}/measurements.csv",
        f"{plan.results}/measurements.manifest.json",
        f"{plan.results}/measurements.record.json",
    log:
        f"{plan.results}/.measurements.log",
    conda:
        "../../envs/main.yaml"
    params:
        job=plan.collect().spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

# Trajectories: corpora, the runs trained on them, and averages of their checkpoints.


rule corpus:
    output:
        f"{plan.results}/corpus/{{corpus}}/manifest.json",
        f"{plan.results}/corpus/{{corpus}}/record.json",
    log:
        f"{plan.results}/corpus/{{corpus}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: workflow.cores
    params:
        job=lambda w: plan.corpus(w.corpus).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule train:
    input:
        lambda w: plan.train(w.run).needs,
    output:
        f"{plan.results}/train/{{run}}/manifest.json",
        f"{plan.results}/train/{{run}}/record.json",
    log:
        f"{plan.results}/train/{{run}}/.log",
    priority: 10
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.train(w.run).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule average:
    input:
        lambda w: plan.average(w.average).needs,
    output:
        f"{plan.results}/average/{{average}}/manifest.json",
        f"{plan.results}/average/{{average}}/record.json",
    log:
        f"{plan.results}/average/{{average}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.average(w.average).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

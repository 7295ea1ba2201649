# Trajectories: the corpus, the runs trained on it, and averages of their checkpoints.


rule corpus:
    output:
        f"{plan.results}/corpus/manifest.json",
        f"{plan.results}/corpus/record.json",
    params:
        job=plan.corpus().spec(),
    threads: workflow.cores
    shell:
        "python -m ptq_dynamics.run --job {params.job:q}"


rule train:
    input:
        lambda w: plan.train(w.run).needs,
    output:
        f"{plan.results}/train/{{run}}/manifest.json",
        f"{plan.results}/train/{{run}}/record.json",
    params:
        job=lambda w: plan.train(w.run).spec(),
    priority: 10
    threads: plan.config.scale.threads
    shell:
        "python -m ptq_dynamics.run --job {params.job:q}"


rule average:
    input:
        lambda w: plan.average(w.average).needs,
    output:
        f"{plan.results}/average/{{average}}/manifest.json",
        f"{plan.results}/average/{{average}}/record.json",
    params:
        job=lambda w: plan.average(w.average).spec(),
    threads: plan.config.scale.threads
    shell:
        "python -m ptq_dynamics.run --job {params.job:q}"

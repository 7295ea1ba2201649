# Trajectories: corpora, the runs trained on them, and averages of their checkpoints.


rule corpus:
    output:
        f"{RESULTS}/corpus/{{corpus}}/manifest.json",
        f"{RESULTS}/corpus/{{corpus}}/record.json",
    log:
        f"{RESULTS}/corpus/{{corpus}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: workflow.cores
    params:
        job=lambda w: plan.corpora.corpus(w.corpus).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule train:
    input:
        lambda w: plan.trajectories.train(w.run, int(w.seed)).needs,
    output:
        f"{RESULTS}/train/{{run}}/seed-{{seed}}/manifest.json",
        f"{RESULTS}/train/{{run}}/seed-{{seed}}/record.json",
    log:
        f"{RESULTS}/train/{{run}}/seed-{{seed}}/.log",
    priority: 10
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.trajectories.train(w.run, int(w.seed)).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule average:
    input:
        lambda w: plan.trajectories.average(w.average, w.shard, int(w.seed)).needs,
    output:
        f"{RESULTS}/average/{{average}}/seed-{{seed}}/{{shard}}/manifest.json",
        f"{RESULTS}/average/{{average}}/seed-{{seed}}/{{shard}}/record.json",
    log:
        f"{RESULTS}/average/{{average}}/seed-{{seed}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.trajectories.average(w.average, w.shard, int(w.seed)).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

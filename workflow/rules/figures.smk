# Figures, and a target of its own for each: snakemake fig04


rule figure:
    input:
        lambda w: plan.figure(w.figure).needs,
    output:
        f"{plan.pictures}/{{figure}}.pdf",
        f"{plan.pictures}/{{figure}}.png",
        f"{plan.pictures}/{{figure}}.csv",
        f"{plan.pictures}/{{figure}}.manifest.json",
        f"{plan.pictures}/{{figure}}.record.json",
    log:
        f"{plan.pictures}/.{{figure}}.log",
    priority: 20
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: plan.figure(w.figure).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


for name in plan.config.figures:

    rule:
        name:
            name
        input:
            plan.figure(name).outputs,
        localrule: True

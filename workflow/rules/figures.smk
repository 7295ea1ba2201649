# Figures, and a target of its own for each: snakemake fig04


rule figure:
    input:
        lambda w: plan.figures.figure(w.figure).needs,
    output:
        f"{plan.site.pictures}/{{figure}}.pdf",
        f"{plan.site.pictures}/{{figure}}.png",
        f"{plan.site.pictures}/{{figure}}.csv",
        f"{plan.site.pictures}/{{figure}}.manifest.json",
        f"{plan.site.pictures}/{{figure}}.record.json",
    log:
        f"{plan.site.pictures}/.{{figure}}.log",
    priority: 20
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: plan.figures.figure(w.figure).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


for name in plan.site.config.figures:

    rule:
        name:
            name
        input:
            plan.figures.figure(name).outputs,
        localrule: True

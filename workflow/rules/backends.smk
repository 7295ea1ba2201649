# Tools with environments of their own, and how they compare.


rule environment:
    output:
        "envs/{tool}/manifest.json",
        "envs/{tool}/record.json",
    log:
        "envs/{tool}/.log",
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: plan.environment(w.tool).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule comparison:
    input:
        plan.backends().needs,
    output:
        f"{plan.results}/backends/manifest.json",
        f"{plan.results}/backends/record.json",
    log:
        f"{plan.results}/backends/.log",
    conda:
        "../../envs/main.yaml"
    params:
        job=plan.backends().spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule backends:
    input:
        plan.backends().outputs,
    localrule: True

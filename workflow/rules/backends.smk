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
        job=lambda w: plan.quantization.environment(w.tool).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule comparison:
    input:
        plan.backends.comparison().needs,
    output:
        f"{RESULTS}/backends/manifest.json",
        f"{RESULTS}/backends/record.json",
    log:
        f"{RESULTS}/backends/.log",
    conda:
        "../../envs/main.yaml"
    params:
        job=plan.backends.comparison().spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"


rule backends:
    input:
        plan.backends.comparison().outputs,
    localrule: True

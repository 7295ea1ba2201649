# Text as tokens, documented functions, and downstream tasks.


rule corpus:
    input:
        **inputs_of("corpus", "corpus", "functions", "checkpoint"),
    output:
        manifest="<results>/corpus/{corpus}/manifest.json",
    log:
        "<results>/corpus/{corpus}/.log",
    conda:
        ENVIRONMENT
    threads: THREADS
    resources:
        **requests("corpus"),
    shell:
        JOB


rule functions:
    input:
        **inputs_of("functions"),
    output:
        manifest="<results>/functions/{corpus}/manifest.json",
    log:
        "<results>/functions/{corpus}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("functions"),
    shell:
        JOB


rule make_task:
    input:
        **inputs_of("make_task", "functions", "corpus"),
    output:
        manifest="<results>/tasks/{made}/{corpus}/manifest.json",
    log:
        "<results>/tasks/{made}/{corpus}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("make_task"),
    shell:
        JOB


rule fetch_task:
    input:
        **inputs_of("fetch_task"),
    output:
        manifest="<results>/tasks/{fetched}/manifest.json",
    log:
        "<results>/tasks/{fetched}/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("fetch_task"),
    shell:
        JOB

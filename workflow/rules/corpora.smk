# Text as tokens, documented functions, and downstream tasks.


rule corpus:
    input:
        corpus=manifests_of("corpus", "corpus"),
        functions=manifests_of("corpus", "functions"),
        checkpoint=manifests_of("corpus", "checkpoint"),
        spec=settled_spec("corpus"),
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
        spec=settled_spec("functions"),
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
        functions=manifests_of("make_task", "functions"),
        corpus=manifests_of("make_task", "corpus"),
        spec=settled_spec("make_task"),
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
        spec=settled_spec("fetch_task"),
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

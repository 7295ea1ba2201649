# What a reader sees: figures, claims, tables, the paper and the page.


rule figure:
    input:
        **inputs_of(
            "figure", "measure", "beside", "landscape", "components", "run", "others"
        ),
    output:
        manifest="<figures>/{figure}.manifest.json",
    log:
        "<figures>/.{figure}.log",
    priority: 20
    conda:
        ENVIRONMENT
    resources:
        **requests("figure"),
    shell:
        JOB


rule judge:
    input:
        **inputs_of(
            "judge", "measure", "beside", "landscape", "components", "run", "others"
        ),
    output:
        manifest="<results>/claims.manifest.json",
    log:
        "<results>/.claims.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("judge"),
    shell:
        JOB


rule tabulate:
    input:
        **inputs_of("tabulate", "claims", "measure", "beside"),
    output:
        manifest="<results>/tables/manifest.json",
    log:
        "<results>/tables/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("tabulate"),
    shell:
        JOB


rule typeset:
    input:
        **inputs_of("typeset", "figure", "claims", "tables", "measurements"),
    output:
        manifest="<paper>/manifest.json",
    log:
        "<paper>/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("typeset"),
    shell:
        JOB


rule report:
    input:
        **inputs_of("report", "figure", "claims", "tables"),
    output:
        manifest="<results>/index.manifest.json",
    log:
        "<results>/.index.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("report"),
    shell:
        JOB

# What a reader sees: figures, claims, tables, the paper and the page.


rule figure:
    input:
        measured=manifests_of("figure", "measure", "beside"),
        curvature=manifests_of("figure", "*"),
        landscapes=manifests_of("figure", "landscape"),
        components=manifests_of("figure", "components"),
        runs=manifests_of("figure", "run"),
        spec=settled_spec("figure"),
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
        measured=manifests_of("judge", "measure", "beside"),
        curvature=manifests_of("judge", "*"),
        landscapes=manifests_of("judge", "landscape"),
        components=manifests_of("judge", "components"),
        runs=manifests_of("judge", "run"),
        spec=settled_spec("judge"),
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
        claims=manifests_of("tabulate", "claims"),
        measured=manifests_of("tabulate", "measure", "beside"),
        runs=manifests_of("tabulate", "run"),
        spec=settled_spec("tabulate"),
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
        figures=manifests_of("typeset", "figure"),
        claims=manifests_of("typeset", "claims"),
        tables=manifests_of("typeset", "tables"),
        measurements=manifests_of("typeset", "measurements"),
        spec=settled_spec("typeset"),
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
        figures=manifests_of("report", "figure"),
        claims=manifests_of("report", "claims"),
        tables=manifests_of("report", "tables"),
        spec=settled_spec("report"),
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

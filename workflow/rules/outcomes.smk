# What a reader sees: figures, claims, tables, the paper and the page.


rule figure:
    input:
        measured=needs("figure", "measure", "beside"),
        curvature=needs("figure", "*"),
        landscapes=needs("figure", "landscape"),
        components=needs("figure", "components"),
        runs=needs("figure", "run"),
        spec=spec("figure"),
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
        RUN


rule judge:
    input:
        measured=needs("judge", "measure", "beside"),
        curvature=needs("judge", "*"),
        landscapes=needs("judge", "landscape"),
        components=needs("judge", "components"),
        runs=needs("judge", "run"),
        spec=spec("judge"),
    output:
        manifest="<results>/claims.manifest.json",
    log:
        "<results>/.claims.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("judge"),
    shell:
        RUN


rule tabulate:
    input:
        claims=needs("tabulate", "claims"),
        measured=needs("tabulate", "measure", "beside"),
        runs=needs("tabulate", "run"),
        spec=spec("tabulate"),
    output:
        manifest="<results>/tables/manifest.json",
    log:
        "<results>/tables/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("tabulate"),
    shell:
        RUN


rule typeset:
    input:
        figures=needs("typeset", "figure"),
        claims=needs("typeset", "claims"),
        tables=needs("typeset", "tables"),
        measurements=needs("typeset", "measurements"),
        spec=spec("typeset"),
    output:
        manifest="<paper>/manifest.json",
    log:
        "<paper>/.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("typeset"),
    shell:
        RUN


rule report:
    input:
        figures=needs("report", "figure"),
        claims=needs("report", "claims"),
        tables=needs("report", "tables"),
        spec=spec("report"),
    output:
        manifest="<results>/index.manifest.json",
    log:
        "<results>/.index.log",
    conda:
        ENVIRONMENT
    resources:
        **requests("report"),
    shell:
        RUN

# One page to browse: figures with their values, claims, tables, training curves, provenance, cost.


report_job = lambda w: planned(pages.page)


rule report:
    input:
        lambda w: needs(report_job(w)),
    output:
        update(pages.files),
        update(pages.paths.published),
    log:
        pages.paths.log,
    conda:
        "../../envs/main.yaml"
    params:
        job=lambda w: handover.file(report_job(w)),
    shell:
        RUN

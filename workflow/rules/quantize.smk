# Quantized checkpoints, one job for every trajectory, seed, quantizer and shard.


QUANTIZE = Paths.at(plan.site.places("quantize"))
quantize_job = lambda w: plan.quantization.quantize(
    w.trajectory, w.quantizer, w.shard, int(w.seed)
)


rule quantize:
    input:
        lambda w: needs(quantize_job(w)),
    output:
        update(QUANTIZE.published),
    log:
        QUANTIZE.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("quantize")
    resources:
        **asks(quantize_job),
        devices=plan.resources.devices("quantize"),
    params:
        job=lambda w: handover.file(quantize_job(w)),
        spread=lambda w: plan.resources.spreading(quantize_job(w)),
    shell:
        RUN_SPREAD

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
        devices=plan.resources.ask("quantize").get("gpu", 1),
    params:
        job=lambda w: handover.file(quantize_job(w)),
        spread=lambda w: f"--device-map {plan.resources.device_map(w.trajectory)}",
    shell:
        RUN_SPREAD

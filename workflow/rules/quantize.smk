# Quantized checkpoints, one job for every trajectory, seed, quantizer and shard.


rule quantize:
    input:
        lambda w: plan.quantization.quantize(
            w.trajectory, w.quantizer, w.shard, int(w.seed)
        ).needs,
    output:
        f"{RESULTS}/quantize/{{trajectory}}/seed-{{seed}}/{{quantizer}}/{{shard}}/manifest.json",
        f"{RESULTS}/quantize/{{trajectory}}/seed-{{seed}}/{{quantizer}}/{{shard}}/record.json",
    log:
        f"{RESULTS}/quantize/{{trajectory}}/seed-{{seed}}/{{quantizer}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: THREADS
    params:
        job=lambda w: plan.quantization.quantize(
            w.trajectory, w.quantizer, w.shard, int(w.seed)
        ).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

# Quantized checkpoints, one job for every trajectory, quantizer and shard.


rule quantize:
    input:
        lambda w: plan.quantize(w.trajectory, w.quantizer, w.shard).needs,
    output:
        f"{plan.results}/quantize/{{trajectory}}/{{quantizer}}/{{shard}}/manifest.json",
        f"{plan.results}/quantize/{{trajectory}}/{{quantizer}}/{{shard}}/record.json",
    log:
        f"{plan.results}/quantize/{{trajectory}}/{{quantizer}}/{{shard}}/.log",
    conda:
        "../../envs/main.yaml"
    threads: plan.config.scale.threads
    params:
        job=lambda w: plan.quantize(w.trajectory, w.quantizer, w.shard).spec(),
    shell:
        "python -m ptq_dynamics.jobs.run --job {params.job:q}"

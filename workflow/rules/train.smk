# Trajectories: corpora, the runs trained on them, public models, averages of checkpoints, and what is
# not kept of them.


CORPUS = Paths.at(plan.site.places("corpus"))
corpus_job = lambda w: plan.corpora.corpus(w.corpus)


rule corpus:
    input:
        lambda w: needs(corpus_job(w)),
    output:
        update(CORPUS.published),
    log:
        CORPUS.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("corpus", CORES)
    resources:
        **asks(corpus_job),
    params:
        job=lambda w: handover.file(corpus_job(w)),
    shell:
        RUN


FUNCTIONS = Paths.at(plan.site.places("functions"))
functions_job = lambda w: plan.corpora.functions(w.corpus)


rule functions:
    input:
        lambda w: needs(functions_job(w)),
    output:
        update(FUNCTIONS.published),
    log:
        FUNCTIONS.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("corpus", CORES)
    resources:
        **asks(functions_job),
    params:
        job=lambda w: handover.file(functions_job(w)),
    shell:
        RUN


TRAIN = Paths.at(plan.site.places("train"))
train_job = lambda w: plan.trajectories.train(w.run, int(w.seed))


rule train:
    input:
        lambda w: needs(train_job(w)),
    output:
        update(TRAIN.published),
    log:
        TRAIN.log,
    priority: 10
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("train")
    resources:
        **asks(train_job),
        devices=plan.resources.ask("train").get("gpu", 1),
    params:
        job=lambda w: handover.file(train_job(w)),
        together=f"--gpus {plan.resources.ask('train').get('gpu', 1)}",
    shell:
        RUN_TOGETHER


FETCH = Paths.at(plan.site.places("fetch"))
fetch_job = lambda w: plan.trajectories.fetch(w.public, w.shard)


rule fetch:
    input:
        lambda w: needs(fetch_job(w)),
    output:
        update(FETCH.published),
    log:
        FETCH.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(fetch_job),
    params:
        job=lambda w: handover.file(fetch_job(w)),
    shell:
        RUN


AVERAGE = Paths.at(plan.site.places("average"))
average_job = lambda w: plan.trajectories.average(w.average, w.shard, int(w.seed))


rule average:
    input:
        lambda w: needs(average_job(w)),
    output:
        update(AVERAGE.published),
    log:
        AVERAGE.log,
    conda:
        "../../envs/main.yaml"
    threads: plan.resources.threads("average")
    resources:
        **asks(average_job),
    params:
        job=lambda w: handover.file(average_job(w)),
    shell:
        RUN


DROP = Paths.at(plan.site.places("drop"))
drop_job = lambda w: plan.keeping.drop(w.result)


rule drop:
    input:
        lambda w: needs(drop_job(w)),
    output:
        update(DROP.published),
    log:
        DROP.log,
    conda:
        "../../envs/main.yaml"
    resources:
        **asks(drop_job),
    params:
        job=lambda w: handover.file(drop_job(w)),
    shell:
        RUN

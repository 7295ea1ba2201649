# Snakemake looks here by itself; other workflows import workflow/Snakefile.
include: "workflow/Snakefile"


# The default target of an included file does not count.
rule all:
    input:
        rules.figures.input,
    localrule: True

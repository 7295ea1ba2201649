"""What is browsed: one page of figures, claims, tables, training curves, provenance and cost."""

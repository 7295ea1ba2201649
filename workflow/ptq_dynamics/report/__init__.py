"""What is browsed: one page of figures, claims, tables, provenance and cost."""

"""The page to browse: figures, claims, tables, lineage and cost."""

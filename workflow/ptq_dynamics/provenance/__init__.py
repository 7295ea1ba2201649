"""Provenance: lineage, audits and comparisons of results, releases, and crates."""

"""The layouts: one module each, found by standing here (see `figures.layout`)."""

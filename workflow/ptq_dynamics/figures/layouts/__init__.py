"""The layouts, one module each (see `figures.layout`)."""

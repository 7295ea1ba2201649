"""Data for the text of the paper, and its typesetting."""

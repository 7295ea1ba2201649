"""Text as tokens: sources, splits, and reading."""

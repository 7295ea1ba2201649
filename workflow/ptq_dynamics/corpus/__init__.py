"""Text as tokens: where it comes from, its splits, and reading them."""

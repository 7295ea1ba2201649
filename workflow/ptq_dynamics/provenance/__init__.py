"""Where results come from: whether they are current and why not, their chain, and what differs."""

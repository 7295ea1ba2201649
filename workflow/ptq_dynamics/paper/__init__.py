"""The paper: what its text cites, and how it is typeset."""

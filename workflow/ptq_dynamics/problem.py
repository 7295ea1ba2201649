"""The one exception whose message is meant for the person at the terminal."""


class Problem(Exception):
    """Something a user can mend; one line saying what is wrong, where, and what to do."""

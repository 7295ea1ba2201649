"""What runs are trained for, one module an objective.

A module has a frozen dataclass `Settings`, a function `data` that reads the run's batches, and a
class `Objective` with the loss of one.
"""

"""From configuration to jobs: which result needs which, and where it lies.

Pure functions of the configuration. The rules ask for a job by the wildcards of its output. A plan
is built up in the order in which data flow, a class a step, each on those before it.
"""

from ptq_dynamics.plan.figures import Figures as Plan

__all__ = ["Plan"]

"""RO-Crates: a scale's results with the jobs that made them, in the words of the Provenance Run
Crate (Workflow Run RO-Crate 0.5), which tools of others read."""

from ptq_dynamics.provenance.crate.exporting import Export, export
from ptq_dynamics.provenance.crate.verifying import verify

__all__ = ["Export", "export", "verify"]

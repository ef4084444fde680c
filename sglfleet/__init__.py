"""Everything with effects: facts, render, operations, rollout, proof, reports, and the command line."""

__version__ = "0.1.0"

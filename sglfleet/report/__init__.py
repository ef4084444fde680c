"""Verdicts, findings and effects for people and machines: one module per format."""

"""Proof: expectations to findings, benchmark to effect."""

"""The gate. Pure: imports neither pyinfra, nor sglang, nor torch, and touches no host."""

# PyPI has an unrelated package of the same name; `sglfleet.guard` looks for this marker before anything is judged.
SGLFLEET = True

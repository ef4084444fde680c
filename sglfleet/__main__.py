"""`python -m sglfleet`."""

from sglfleet.cli import main

main()

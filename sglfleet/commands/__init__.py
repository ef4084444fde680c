"""One module per command of `sglfleet`; each has a click command named `command`."""

"""Scripts that are shipped with a release and run on the host: standard library only, Python 3.8 or newer."""

"""`python -m sglfleet.extract.reads FOLDER`."""

import sys
from pathlib import Path

from sglfleet.extract.reads.table import main

if __name__ == "__main__":
    main(Path(sys.argv[1]))

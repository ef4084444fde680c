"""pyinfra's settings for this project. pyinfra runs this file first, before inventory and group data."""

import sys
from pathlib import Path

REQUIRE_PYINFRA_VERSION = ">=3.10,<4"
CONNECT_TIMEOUT = 10  # seconds

# pyinfra puts the working directory last on the path; PyPI has an unrelated package `validators`, and one `lab`.
if (_home := str(Path(__file__).resolve().parent)) in sys.path:
    sys.path.remove(_home)
sys.path.insert(0, _home)

"""A small real server for the tests of this folder."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer

import pytest

from sglfleet.verify.client import Server
from tests.sglfleet.verify.small import Small


@pytest.fixture
def server():
    info = {"version": "0.5.23", "max_req_input_len": 900, "stream_interval": 2, "device": "cpu"}
    handler = type("Handler", (Small,), {"asked": [], "cached": set(), "info": info})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield Server(f"http://127.0.0.1:{http.server_port}", "sesame"), handler
    http.shutdown()
    http.server_close()

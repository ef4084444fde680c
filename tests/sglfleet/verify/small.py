"""A small real HTTP server that answers as SGLang does, for what is asked of it by a proof."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler


class Small(BaseHTTPRequestHandler):
    """Answers like a server with a prefix cache and a key."""

    asked: list[tuple[str, object]]
    cached: set[str]
    info: dict[str, object]

    def _send(self, status, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.headers.get("Authorization") != "Bearer sesame":
            self._send(401, "no")
        elif self.path == "/server_info":
            self._send(200, self.info)
        elif self.path == "/v1/models":
            self._send(200, {"data": [{"id": "lab"}]})
        elif self.path == "/metrics":
            self._send(200, "sglang:x 1\n")
        else:
            self._send(404, "no")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body))
        ids = body.get("input_ids") or [1]
        if self.path != "/generate":
            self._send(404, "no")
        elif len(ids) > 900:
            self._send(400, "too long")
        elif body.get("stream"):
            self._send(200, "".join(f'data: {{"meta_info": {{"completion_tokens": {n}}}}}\n\n' for n in (1, 3, 5, 7)))
        else:
            key = json.dumps(ids)
            hit = len(ids) - 1 if key in self.cached else 0
            self.cached.add(key)
            self._send(200, {"text": f"t{sum(ids)}", "output_ids": ids[:4], "meta_info": {"cached_tokens": hit}})

    def log_message(self, *_):
        pass

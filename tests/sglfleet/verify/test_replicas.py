"""Several data-parallel replicas behind one address, each with a cache and a random state of its own: seen on two H200,
where a prompt that went to the other replica looked like a cache that is off, and equal states like an honoured seed.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sglfleet.verify.client import Server
from sglfleet.verify.workload import observe


class Replicas(BaseHTTPRequestHandler):
    """Requests go to the replicas in turn."""

    caches: list[set[str]]
    states: list[random.Random]
    deterministic = cached = False
    page = 1
    turn = 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = type(self)
        here = kind.turn % len(kind.caches)
        kind.turn += 1
        ids, sampling = body.get("input_ids") or body.get("prompt"), body.get("sampling_params") or {}
        hit = (len(ids) - 1) // kind.page * kind.page if kind.cached and str(ids) in kind.caches[here] else 0
        kind.caches[here].add(str(ids))
        state = random.Random(sampling["sampling_seed"]) if kind.deterministic else kind.states[here]
        tokens = [state.randrange(1000) for _ in range(10)] if sampling.get("temperature") else [1]
        answer = json.dumps({"output_ids": tokens, "meta_info": {"cached_tokens": hit}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def replicas(request) -> Iterator[tuple[Server, type[Replicas], int]]:
    count = request.param
    states = {"caches": [set() for _ in range(count)], "states": [random.Random(1) for _ in range(count)]}
    kind = type("Handler", (Replicas,), states)
    http = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield Server(f"http://127.0.0.1:{http.server_port}"), kind, count
    http.shutdown()
    http.server_close()


def seen(replicas, **more):
    server, kind, count = replicas
    for name, value in more.items():
        setattr(kind, name, value)
    info = {"dp_size": count, "page_size": kind.page}
    return observe(server, info, 5, ["cached_tokens_repeat", "seed_repeats"])[0]


@pytest.mark.parametrize("replicas", [1, 2, 3, 8], indirect=True)
@pytest.mark.parametrize("page", [1, 64, 128])
def test_a_cache_is_found_whichever_replica_a_prompt_goes_to(replicas, page):
    assert seen(replicas, cached=True, page=page)["cached_tokens_repeat"] > 0


@pytest.mark.parametrize("replicas", [1, 2, 3, 8], indirect=True)
def test_no_cache_and_no_seed(replicas):
    got = seen(replicas)
    assert (got["cached_tokens_repeat"], got["seed_repeats"]) == (0, False)


@pytest.mark.parametrize("replicas", [1, 2, 3, 8], indirect=True)
def test_a_seed_that_is_honoured(replicas):
    assert seen(replicas, deterministic=True)["seed_repeats"] is True

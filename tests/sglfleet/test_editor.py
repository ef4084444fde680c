"""The YAML language server that editors use, with a real service file and the committed schema."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "editor"

TEXT = f"""\
# yaml-language-server: $schema={ROOT}/schemas/service-0.5.23.json
service: qwen
engine:
  sglang: 0.5.23
model: /models/qwen
gpus: [0]
args:
  tp-size: four
  attention-backend: flashinfre
  enable-flashinfer-allreduce-fusion: true
  no-such-flag: 1
  kv-cache-dty
rollout:
  on_failure: explode
"""


def server() -> list[str]:
    """The program: on PATH, named by YAML_LANGUAGE_SERVER, or installed by npm into .cache/."""
    named = os.environ.get("YAML_LANGUAGE_SERVER") or shutil.which("yaml-language-server")
    local = CACHE / "node_modules" / ".bin" / "yaml-language-server"
    if not named and not local.exists():
        if not shutil.which("npm"):
            pytest.skip("neither yaml-language-server nor npm is installed")
        CACHE.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--silent", "--prefix", str(CACHE), "yaml-language-server@1"]
        if subprocess.run(words, timeout=300, check=False).returncode:
            pytest.skip("npm cannot install yaml-language-server")
    return [named or str(local), "--stdio"]


class Client:
    """As much of the language server protocol as is asked here."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        self.diagnostics: list[dict[str, Any]] | None = None

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        self.write(message | ({"id": number} if number else {}))

    def write(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        assert self.process.stdin
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self.send(method, params, self.number)
        while True:
            message = self.read()
            if message.get("id") == self.number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def read(self) -> dict[str, Any]:
        """The next message; questions of the server are answered with nothing."""
        assert self.process.stdout
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:
            items = message["params"].get("items", []) if isinstance(message.get("params"), dict) else []
            self.write({"jsonrpc": "2.0", "id": message["id"], "result": [None for _ in items]})
        return message


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    one = Client(server())
    one.ask("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": {}})
    one.send("initialized", {})
    settings = {"yaml": {"validate": True, "completion": True, "hover": True, "schemaStore": {"enable": False}}}
    one.send("workspace/didChangeConfiguration", {"settings": settings})
    document = {"uri": "file:///fleet/group_data/services/qwen.yaml", "languageId": "yaml", "version": 1, "text": TEXT}
    one.send("textDocument/didOpen", {"textDocument": document})
    yield one
    one.process.kill()
    one.process.wait()


def at(word: str, offset: int = 0) -> dict[str, Any]:
    line = next(i for i, text in enumerate(TEXT.splitlines()) if word in text)
    return {
        "textDocument": {"uri": "file:///fleet/group_data/services/qwen.yaml"},
        "position": {"line": line, "character": TEXT.splitlines()[line].index(word) + offset},
    }


@pytest.mark.full
def test_wrong_values_are_flagged_at_their_line(client: Client) -> None:
    while client.diagnostics is None or not client.diagnostics:
        client.read()
    found = {item["range"]["start"]["line"]: item["message"] for item in client.diagnostics}
    lines = TEXT.splitlines()
    said = {lines[line].strip(): message for line, message in found.items()}
    assert 'Expected "integer"' in said["tp-size: four"]
    assert "flashinfer" in said["attention-backend: flashinfre"]
    assert "no-such-flag" in said["no-such-flag: 1"]
    assert "rollback" in said["on_failure: explode"]


@pytest.mark.full
def test_names_are_completed(client: Client) -> None:
    answer = client.ask("textDocument/completion", at("kv-cache-dty", len("kv-cache-dty")))
    items = answer["items"] if isinstance(answer, dict) else answer
    labels = {item["label"] for item in items}
    assert "kv-cache-dtype" in labels
    assert "chunked-prefill-size" in labels


@pytest.mark.full
def test_values_are_completed_and_flags_explained(client: Client) -> None:
    answer = client.ask("textDocument/completion", at("flashinfre", 0))
    items = answer["items"] if isinstance(answer, dict) else answer
    assert {"triton", "flashinfer", "fa3"} <= {item["label"] for item in items}
    hover = client.ask("textDocument/hover", at("tp-size", 2))
    assert "tensor parallel" in json.dumps(hover).lower()

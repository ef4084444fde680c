"""`doctor`: what was asked is read from the process and from server_info, judged as it stands, and proven."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import urlsplit

from sglfleet.verify.document import Document, HostProof
from sglfleet.verify.effective import given_flags
from validators.verdict import Decision, Outcome, Verdict

PLACE = ("host", "port", "api-key", "model-path", "model")  # where it listens and what it serves, not what it does
LAUNCHERS = ("sglang.launch_server", "serve")


def examine(
    *,
    url: str | None,
    host: str | None,
    unit: str | None = None,
    port: int | None = None,
    user: str | None = None,
    ssh_config: str | None = None,
    sm: str | None = None,
    gpus: int | None = None,
    key: str = "",
    profile: bool = True,
) -> Document:
    """Ask one server, by URL or on its host, and prove what its flags do."""
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec: dict[str, Any] = {"profile": profile}
    if url:
        local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        raw = _here({**spec, "url": url, "key": key, "local": local, "port": urlsplit(url).port})
        return Document(url, started, (_proof(raw, url, sm, gpus),))
    assert host is not None
    spec |= {"unit": unit, "port": port}
    if host in ("@local", "localhost"):
        return Document(host, started, (_proof(_here({**spec, "key": key}), host, sm, gpus),))
    data = {"ssh_user": user, "ssh_config_file": ssh_config}
    raw, told = _there(host, {name: value for name, value in data.items() if value}, spec)
    return Document(host, started, (_proof(raw, host, sm or told.get("sm"), gpus or told.get("gpus")),))


def _here(spec: dict[str, Any]) -> dict[str, Any]:
    from sglfleet.verify.collect import collect

    return collect(spec)


def _there(name: str, data: dict[str, Any], spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The host's answer, and SM and number of its GPUs where it tells them."""
    from sglfleet.fleet import connect
    from sglfleet.inventory import Host, Inventory, Layer
    from sglfleet.verify.prove import look

    inventory = Inventory({name: Host(name, (), (Layer("command line", data),))})
    with connect(inventory) as fleet:
        if name in fleet.failed:
            return {"error": fleet.failed[name]}, {}
        host = fleet.hosts[name]
        return look(host, spec), _cards(host)


def _cards(host: Any) -> dict[str, Any]:
    from sglfleet.hostreport import HostReport

    try:
        facts = host.get_fact(HostReport, host=host.name, spec={}).facts
    except Exception:  # facts are a help here; without them the judgement says that it does not know
        return {}
    sms = {gpu.sm for gpu in facts.gpus or ()}
    return {"sm": sms.pop(), "gpus": len(facts.gpus)} if len(sms) == 1 else {}


def _proof(raw: Mapping[str, Any], name: str, sm: str | None, gpus: int | None) -> HostProof:
    from sglfleet.verify.prove import assemble

    if raw.get("error"):
        return HostProof(name, "server", error=str(raw["error"]))
    tokens = asked_tokens(raw)
    info = raw.get("server_info") or {}
    release = str(info.get("version") or (raw.get("packages") or {}).get("sglang") or "")
    judged, args, why = judged_as_it_stands(release, tokens, raw, sm, gpus)
    service = str((raw.get("unit") or {}).get("name") or (raw.get("container") or "")[:12] or "server")
    proof = assemble(raw, name, service, asked=args, judged=judged)
    return replace(proof, gaps={**proof.gaps, **({"judgement": why} if why else {})}, url=str(raw.get("url") or ""))


def asked_tokens(raw: Mapping[str, Any]) -> list[str]:
    """The flags the server was started with: from its process, else from what it says of its own launch."""
    argv = list((raw.get("process") or {}).get("argv") or ())
    for index, token in enumerate(argv):
        if token in LAUNCHERS or token.endswith("launch_server.py"):
            return argv[index + 1 :]
    command = (raw.get("server_info") or {}).get("launch_command")
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError:
            return command.split()
    return []


def judged_as_it_stands(
    release: str, tokens: list[str], raw: Mapping[str, Any], sm: str | None, gpus: int | None
) -> tuple[tuple[Verdict, ...], dict[str, Any], str]:
    """Verdicts on a command line that already runs: nothing is dropped any more, so idle flags count as forced."""
    from validators import parser
    from validators.argv import to_args
    from validators.case import Case, CaseError
    from validators.judge import judge
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang

    try:
        known = load_sglang(release)
    except (UnknownReleaseError, BrokenKnowledgeError, ValueError) as error:
        given = {name: value for name, value in given_flags(tokens).items() if name not in PLACE}
        reason = f"nothing is known of SGLang {release or 'of this release'}"
        unknown = (Verdict(n, v, Outcome.UNKNOWN, Decision.WARN, reason, "none") for n, v in given.items())
        return tuple(unknown), dict(given), str(error)
    given_ = parser.read(known, {n: v for n, v in to_args(known, tokens).args.items() if n not in PLACE})
    args: dict[str, Any] = {one.flag.name if one.flag else one.name: one.value for one in given_}
    packages = dict(raw.get("packages") or {})
    case: dict[str, Any] = {"sglang": release, "args": args, "packages": packages}
    if packages.get("flashinfer-python"):
        case["flashinfer"] = packages["flashinfer-python"]
    if sm:
        case["sm"] = sm
    if gpus:
        case["gpus"] = gpus
    try:
        judged = judge(Case.from_json(case, today=date.today()))
    except CaseError as error:
        return (), args, str(error)
    runs = tuple(
        v if v.decision in (Decision.KEEP, Decision.WARN) else replace(v, decision=Decision.WARN, replacement={})
        for v in judged.verdicts
    )
    why = "" if sm else "the SM of the GPUs is not known: give --sm, so that the gates can be judged"
    return runs, args, why

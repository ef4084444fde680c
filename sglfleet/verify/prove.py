"""Proof of one running service: ask its host, compare with what was judged. For commands and deploys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sglfleet.verify.document import HostProof, verdicts
from validators.verdict import Decision, Outcome, Status, Verdict

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from sglfleet.verify.evidence import Seen
    from sglfleet.verify.findings import Finding, Proof

SECONDS = 240.0  # one proof, profile included, before the host counts as lost


def prove(
    host: Host,
    service: str,
    *,
    profile: bool = True,
    python: str = "python3",
    correctness: bool = True,
    timeout: float = SECONDS,
    asked: Mapping[str, Any] | None = None,
) -> HostProof:
    """Prove the release of `service` that runs on a connected pyinfra host, against the verdicts it was deployed with.

    One round trip. `python`: any Python from 3.10 on that the host has. `asked`: arguments of the service file; default
    those in the release's manifest. Never raises for what the host or the server do: see `HostProof.error` and `gaps`.
    """
    spec: dict[str, Any] = {"service": service, "profile": profile, "outputs": correctness}
    if asked is not None:
        from validators.expectations import for_flag

        wanted = [e for name, value in asked.items() for e in for_flag(name, value) if e.kind == "response"]
        spec["observe"] = sorted({(e.present or e.absent).partition("=")[0] for e in wanted})
    raw = look(host, spec, python, timeout)
    return assemble(raw, host.name, service, asked=asked, correctness=correctness)


def look(host: Host, spec: Mapping[str, Any], python: str = "python3", timeout: float = SECONDS) -> dict[str, Any]:
    """What `collect` answers on a host; `error` where it could not be asked."""
    from sglfleet.operations import HostFailed, run
    from sglfleet.verify import ship
    from sglfleet.verify.gathered import unpack

    try:
        output = run(host, ship.script(json.dumps(dict(spec)), python), timeout=timeout, check=False)
    except HostFailed as error:
        return {"error": error.reason}
    try:
        return unpack(output.out)
    except ValueError:
        told = (output.err or output.out).strip().splitlines()
        return {"error": f"the proof could not run on the host: {told[-1] if told else f'exit code {output.code}'}"}


def assemble(
    raw: Mapping[str, Any],
    host: str,
    service: str,
    *,
    asked: Mapping[str, Any] | None = None,
    judged: tuple[Verdict, ...] | None = None,
    stand_in: Mapping[str, Any] | None = None,
    correctness: bool = True,
) -> HostProof:
    """From a host's answer to its proof. Pure.

    `judged`: default the verdicts of the running release, with the engine's own word where it was asked before launch.
    """
    from sglfleet.verify import earlier
    from sglfleet.verify.correctness import compare
    from sglfleet.verify.effective import table
    from sglfleet.verify.findings import prove as findings
    from sglfleet.verify.gathered import seen

    if raw.get("error"):
        return HostProof(host, service, error=str(raw["error"]))
    manifest = raw.get("manifest") or {}
    info = raw.get("server_info") or {}
    gaps = dict(raw.get("gaps") or {})
    probe = raw.get("probe") or {}
    if judged is None:
        judged = verdicts(probe.get("verdicts") or manifest.get("verdicts") or ())
    judged = expecting(judged)
    past = earlier.usable(raw)
    controls = {v.flag: c for v in judged if (c := earlier.control(v, past))}
    evidence = seen(raw, controls)
    judged = tuple(replace(v, expects=()) if v.flag == "dtype" and _cache_quantised(evidence) else v for v in judged)
    before = earlier.reference(past)
    common: dict[str, Any] = {
        "release": str(manifest.get("release") or ""),
        "sglang": str(info.get("version") or manifest.get("sglang") or ""),
        "url": str(raw.get("url") or ""),
        "gaps": evidence.gaps,
        "seconds": dict(raw.get("seconds") or {}),
        "disagreements": tuple(str(line) for line in probe.get("said") or ()),
    }
    if not info:
        from sglfleet.diagnosis import diagnose

        log = evidence.journal.text() if evidence.journal else ""
        found = tuple(str(d) for d in diagnose(log, _asked(asked, manifest, judged)))
        first, second = (
            ("process", "server_info") if "process" not in raw and "unit" in raw else ("server_info", "process")
        )
        why = gaps.get(first) or gaps.get(second) or "the server does not answer"
        return HostProof(host, service, error=why, diagnosis=found, **common)
    fields, names = naming(common["sglang"])
    substitutes = stand_in if stand_in is not None else _stand_in(manifest)
    return HostProof(
        host,
        service,
        error=f"{gaps['profile']}: look at its journal, start it again, and leave the profile out"
        if raw.get("died")
        else "",
        proofs=_standing_in(findings(judged, evidence), substitutes, info),
        rows=table(_asked(asked, manifest, judged), judged, evidence, fields, substitutes, names),
        correctness=compare(raw.get("outputs") or (), before) if correctness else None,
        outputs=tuple(raw.get("outputs") or ()),
        **common,
    )


def _cache_quantised(evidence: Seen) -> bool:
    """Whether the KV cache has a type of its own, so that its line says nothing of the model's."""
    pattern = re.compile(r"KV Cache is allocated\. dtype: torch\.(?!float16|bfloat16|float32)")
    return any(pattern.match(line.message) for line in (evidence.journal.lines if evidence.journal else ()))


def expecting(judged: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Verdicts that no rule gave an expectation, of flags that act or are unknown: the plain list's are added."""
    from validators.expectations import for_flag

    def plain(v: Verdict) -> bool:
        may = v.outcome in (Outcome.ACTIVE, Outcome.UNKNOWN) and v.decision in (Decision.KEEP, Decision.WARN)
        return may and not v.expects

    return tuple(replace(v, expects=for_flag(v.flag, v.value)) if plain(v) else v for v in judged)


def naming(release: str) -> tuple[dict[str, str], dict[str, str]]:
    """Flag -> ServerArgs field, and other spelling -> flag, of a release; empty where nothing is known of it."""
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_sglang

    try:
        flags = load_sglang(release).flags
    except (UnknownReleaseError, BrokenKnowledgeError, ValueError):
        return {}, {}
    fields = {name: flag.field for name, flag in flags.items() if flag.field}
    names = {s.lstrip("-"): name for name, flag in flags.items() for s in flag.spellings if not s.startswith("--no-")}
    return fields, names


def _asked(
    asked: Mapping[str, Any] | None, manifest: Mapping[str, Any], judged: tuple[Verdict, ...]
) -> Mapping[str, Any]:
    if asked is not None:
        return asked
    return {v.flag: v.value for v in judged if not v.automatic and v.rule not in ("host", "fit")}


def _standing_in(
    proofs: tuple[Proof, ...], substitutes: Mapping[str, Any], info: Mapping[str, Any]
) -> tuple[Proof, ...]:
    """On a lab host that plays a GPU and runs on its CPU, what a GPU would show says nothing against a flag."""
    if "device" not in substitutes or info.get("device") != "cpu":
        return proofs
    return tuple(
        replace(p, status=Status.NOT_PROVEN, reason=f"this host stands in for one with GPUs: {p.reason}")
        if p.status is Status.CONTRADICTED and all(_of_gpu(f) for f in p.findings if f.status is Status.CONTRADICTED)
        else p
        for p in proofs
    )


def _of_gpu(finding: Finding) -> bool:
    return finding.expectation is not None and finding.expectation.kind in ("kernel", "operator", "log", "server_info")


def _stand_in(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Flags a lab's inventory put in or left out after judging, from the notes in the manifest. Left out: value ""."""
    out: dict[str, Any] = {}
    for note in manifest.get("stand_in") or ():
        head, _, rest = str(note).partition(": ")
        if "after judging" not in head:
            continue
        for part in rest.split("; "):
            if part.startswith("left out: "):
                out.update(dict.fromkeys(part.removeprefix("left out: ").split(", "), ""))
            elif not part.startswith("engine: "):
                pairs = (item.partition("=") for item in part.split(", ") if "=" in item)
                out.update({name: value for name, _, value in pairs})
    return out

"""Before launch: the engine on the host is asked what it makes of the effective command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sglfleet.verify.probe import Disagreement, could_not_ask, disagreements
from validators.verdict import Outcome

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from validators.verdict import Verdict

SECONDS = 240.0  # imports of the engine included, on a busy host
STOPS = (Outcome.FAILS, Outcome.REJECTED)


def ask(host: Host, python: str, argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, Any]:
    """The engine's answer; `gaps` says what could not be asked, everything where the probe could not run."""
    from sglfleet.operations import HostFailed, run
    from sglfleet.verify import ship

    spec = json.dumps({"argv": list(argv), "sms": [], "env": dict(env)})
    try:
        output = run(host, ship.script(spec, python, ("ask_engine",), "ask_engine"), timeout=SECONDS, check=False)
    except HostFailed as error:
        return {"gaps": {"everything": error.reason}}
    try:
        answer = json.loads(output.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        told = (output.err or output.out).strip().splitlines()
        return {"gaps": {"everything": told[-1] if told else f"exit code {output.code}"}}
    return answer if isinstance(answer, dict) else {"gaps": {"everything": "not an answer of ours"}}


def before_launch(
    host: Host, python: str, argv: tuple[str, ...], env: Mapping[str, str], verdicts: tuple[Verdict, ...], sglang: str
) -> tuple[list[str], list[str]]:
    """(what to say, why it must not start). The engine's word counts where it could really ask."""
    from sglfleet.verify.prove import naming

    answer = ask(host, python, argv, env)
    fields, _ = naming(sglang)
    found = disagreements(answer, verdicts, fields, majors=_majors(answer))
    said = [str(one) for one in found] + [f"the engine could not be asked: {text}" for text in could_not_ask(answer)]
    return said, [str(one) for one in found if stops(one)]


def stops(one: Disagreement) -> bool:
    """Whether the engine refuses what was judged to start."""
    return one.wins and one.becomes in STOPS


def _majors(answer: Mapping[str, Any]) -> dict[str, tuple[int, ...] | None]:
    """What is known of the generators of the FlashInfer that is installed; uncertain ones are left out.

    Those that name their architectures themselves do not look at the GPU: they answer the same everywhere.
    """
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError, load_flashinfer

    version = str((answer.get("packages") or {}).get("flashinfer-python") or "")
    try:
        rows = load_flashinfer(version).generators.values() if version else ()
    except (UnknownReleaseError, BrokenKnowledgeError, ValueError):
        return {}
    return {row.name: row.majors for row in rows if row.certain and not row.archs}

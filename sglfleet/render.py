"""A service on one host as an immutable release: unit text, files, and the id that names all of it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglfleet import engine as engines
from sglfleet import paths, secrets, stopping, templates
from sglfleet.secrets import Hidden

if TYPE_CHECKING:
    from validators.facts import HostFacts
    from validators.service import Service
    from validators.verdict import Judgement, Value

PLACEHOLDER = "0" * 12  # stands for the release id while it is computed; as long as the id
BURST = 3  # starts that may fail in a row
RESTART_SEC = 5  # seconds between two starts
PREFLIGHT_SEC = 120  # seconds; nvidia-smi may take 60 on its own


@dataclass(frozen=True)
class Release:
    """Everything a host needs to run this service, and nothing of it changes once it is named."""

    service: str
    id: str
    host: str
    unit: str
    files: Mapping[str, bytes]  # below the release's folder
    secrets: Mapping[str, Hidden]
    argv: tuple[str, ...]  # the server's arguments, without the launcher
    preflight: tuple[str, ...]  # the command that ExecStartPre runs, without what can only be true while it is down
    user: str
    engine: engines.Engine
    url: str  # where the server answers, seen from the host itself
    port: int
    start_timeout: int  # seconds
    stop_timeout: int  # seconds
    manifest: Mapping[str, Any] = field(default_factory=dict)


class RenderError(ValueError):
    """Something that cannot be written into a unit. One line, `service: what: todo`."""


def render(
    service: Service,
    facts: HostFacts,
    judgement: Judgement,
    *,
    engine: engines.Engine,
    argv: tuple[str, ...],
    packages: Mapping[str, str],
    values: Mapping[str, Hidden],
    env: Mapping[str, str] | None = None,
    rank: int = 0,
    interpreter: str = "",
    notes: tuple[str, ...] = (),
    leak_waived: bool = False,
) -> Release:
    """The release. `argv`: effective flags; `packages`: versions judged and there; `env`: on top of the service's."""
    try:
        return _render(
            service, facts, judgement, engine, argv, packages, values, env or {}, rank, interpreter, notes, leak_waived
        )
    except ValueError as e:
        raise RenderError(f"{service.service}: {e}") from None


def _render(
    service: Service,
    facts: HostFacts,
    judgement: Judgement,
    engine: engines.Engine,
    argv: tuple[str, ...],
    packages: Mapping[str, str],
    values: Mapping[str, Hidden],
    env: Mapping[str, str],
    rank: int,
    interpreter: str,
    notes: tuple[str, ...],
    leak_waived: bool,
) -> Release:
    name = service.service
    start_timeout = int(service.rollout.start_timeout) + PREFLIGHT_SEC
    stop_timeout = int(service.rollout.drain_timeout) + stopping.MARGIN_SEC
    arguments = ("--model-path", service.model.path, *argv)
    waived = ("--sglfleet-leak-waived",) if leak_waived else ()
    url = f"{'https' if 'ssl-certfile' in judgement.args else 'http'}://{_reachable(service.bind)}:{service.port}"
    checks = _checks(service, facts, packages)
    stop = stopping.of(service.engine.sglang)
    # the interpreter of a venv may lie elsewhere; where nobody could tell, it may be in a home directory
    places = (service.model.path, engine.venv, interpreter or "/home/")
    homes = any(p.startswith(("/home/", "/root/", "/run/user/")) for p in places)

    def preflight(release: str) -> tuple[str, ...]:
        return (engine.interpreter, "-I", f"{paths.release(name, release)}/preflight.py", *checks)

    def text(release: str) -> str:
        home = paths.release(name, release)
        return templates.fill(
            "sglang.service.j2",
            unit=paths.unit(name),
            service=name,
            sglang=service.engine.sglang,
            host=facts.host,
            release=release,
            notes=(*notes, *explain(judgement)),
            mounts=(home, engine.venv, service.model.path),
            burst=BURST,
            start_limit_interval=BURST * (start_timeout + RESTART_SEC) + 60,
            user=user(service),
            cache=paths.cache(name),
            environment=environment(service, env),
            secrets={item: f"{paths.secrets(name, release)}/{item}" for item in sorted(values)},
            preflight=(*preflight(release), *(("--listen", f"{service.bind}:{service.port}") if rank == 0 else ())),
            start=(
                engine.interpreter,
                *((f"{home}/launch.py", *waived) if values else ("-m", "sglang.launch_server")),
                *arguments,
            ),
            readiness=(
                *(engine.interpreter, "-I", f"{home}/readiness.py", "--url", url),
                *("--deadline", str(int(service.rollout.start_timeout)), "--kind", _kind(judgement.args)),
                *(("--rank", str(rank)) if rank else ()),
            ),
            start_timeout=start_timeout,
            stop_timeout=stop_timeout,
            restart=stop.restart,
            restart_reason=stop.reason,
            success_status=stop.success,
            restart_sec=RESTART_SEC,
            protect_home="read-only" if homes else "yes",
        )

    digest = secrets.digest(name, values)
    release = identify(text(PLACEHOLDER), digest)
    unit = text(release)
    manifest = {
        "schema_version": 1,
        "service": name,
        "release": release,
        "host": facts.host,
        "sglang": service.engine.sglang,
        "venv": engine.venv,
        "packages": dict(sorted(packages.items())),
        "argv": list(arguments),
        "gpus": list(service.gpus),
        "driver": facts.driver,
        "decision": str(judgement.decision),
        "verdicts": [plain(v) for v in judgement.verdicts],
        "stand_in": list(notes),
        "url": url,
        "port": service.port,
        "secrets": sorted(values),
        "user": user(service),
    }
    files = {
        paths.unit(name): unit.encode(),
        "release.json": (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(),
        "preflight.py": _script("preflight"),
        "readiness.py": _script("readiness"),
        **({"launch.py": _script("launch")} if values else {}),
    }
    return Release(
        service=name,
        id=release,
        host=facts.host,
        unit=unit,
        files=files,
        secrets=dict(values),
        argv=arguments,
        preflight=preflight(release),
        user=user(service),
        engine=engine,
        url=url,
        port=service.port,
        start_timeout=start_timeout,
        stop_timeout=stop_timeout,
        manifest=manifest,
    )


def user(service: Service) -> str:
    """The system user of a service: its own, so that services cannot read each other's memory; 32 letters at most."""
    if service.user:
        return service.user
    name = f"sglang-{service.service}"
    return name if len(name) <= 32 else f"{name[:25]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def identify(unit: str, digest: str = "") -> str:
    """The release id: a hash of the unit without comments (their wording restarts nothing) and of the secrets."""
    lines = [line for line in unit.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join([*lines, digest]).encode()).hexdigest()[: len(PLACEHOLDER)]


def environment(service: Service, extra: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: GPUs by their PCI order, as nvidia-smi counts; kernel caches that outlive a release."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in service.gpus),
        **paths.set_by_the_unit(service.service),
        **service.env,
        **extra,
    }


def explain(judgement: Judgement) -> tuple[str, ...]:
    """What was dropped, replaced or let through, with its reason: comments above the command line."""
    lines = []
    for v in judgement.verdicts:
        value = "" if v.value is True else f"={json.dumps(v.value, ensure_ascii=False)}"
        if str(v.decision) == "drop":
            lines.append(f"dropped: --{v.flag}{value}: {v.reason}")
        elif str(v.decision) == "replace":
            instead = " ".join(f"--{k}={json.dumps(x, ensure_ascii=False)}" for k, x in v.replacement.items())
            lines.append(f"replaced: --{v.flag}{value} by {instead or 'nothing'}: {v.reason}")
        elif v.waiver:
            lines.append(f"waived: --{v.flag}{value}: {v.reason} ({v.waiver})")
    return tuple(lines)


def plain(item: Any) -> Any:
    """Dataclasses and enums as JSON."""
    if hasattr(item, "__dataclass_fields__"):
        return {
            key: plain(getattr(item, key)) for key in item.__dataclass_fields__ if getattr(item, key) not in ("", ())
        }
    if isinstance(item, tuple | list):
        return [plain(x) for x in item]
    if isinstance(item, Mapping):
        return {str(k): plain(v) for k, v in item.items()}
    return item if isinstance(item, bool | int | float) or item is None else str(item)


def _checks(service: Service, facts: HostFacts, packages: Mapping[str, str]) -> tuple[str, ...]:
    sms = {gpu.index: gpu.sm for gpu in facts.gpus or ()}
    words = ["--gpus", str(len(sms))]
    for index in service.gpus:
        words += ["--gpu", f"{index}={sms[index]}"]
    if facts.driver:
        words += ["--driver", facts.driver]
    for name, version in sorted(packages.items()):
        words += ["--package", f"{name}={version}"]
    return (*words, "--model", service.model.path)


def _kind(args: Mapping[str, Value]) -> str:
    if args.get("is-embedding"):
        return "encode"
    if args.get("disaggregation-mode") in ("prefill", "decode"):
        return "pair"
    return "tokens" if args.get("skip-tokenizer-init") else "generate"


def _reachable(bind: str) -> str:
    """The address by which the host itself reaches a server that is bound to `bind`."""
    if bind in ("", "0.0.0.0"):  # noqa: S104
        return "127.0.0.1"
    if bind == "::":
        return "[::1]"
    return f"[{bind}]" if ":" in bind and not bind.startswith("[") else bind


@cache
def _script(name: str) -> bytes:
    return (Path(__file__).parent / "onhost" / f"{name}.py").read_bytes()

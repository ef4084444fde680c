"""All-to-all back ends of mixture-of-experts layers: what they need beside argument resolution's own checks."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import deep_gemm, experts, places
from validators.rules.asked import LEAVE_OUT, unread
from validators.rules.context import Context
from validators.rules.interface import Gate, Outcome, Part, Step

SUBJECT = "All-to-all back ends of mixture-of-experts layers"
FLAGS = ("moe-a2a-backend", "enable-deepep-moe")
SITES: tuple[str, ...] = ()
_ON_DEEP_GEMM = ("deepep", "deepep_v2", "mooncake", "nixl")
_OTHER_RUNNERS = ("flashinfer_cutedsl", "humming")  # compute the experts behind it without DeepGEMM


def judge(c: Context) -> Iterator[Part]:
    for flag in FLAGS:
        value = c.args.get(flag)
        if not c.has(flag) or value in (None, False, "none"):
            continue
        name = "deepep" if value is True else str(value)
        if experts.none(c):
            yield unread(c, flag, f"{c.arch} has no experts.", "a2a.unknown")
            continue
        unknown = _without_dispatcher(c, flag, name)
        if unknown is not None:
            yield unknown
        elif name in _ON_DEEP_GEMM and c.args.get("moe-runner-backend") not in _OTHER_RUNNERS:
            yield _on_deep_gemm(c, flag, name)


def _without_dispatcher(c: Context, flag: str, name: str) -> Part | None:
    """The parser takes names for which a layer of experts has no dispatcher on an NVIDIA host."""
    raised, *known = places.row(c, "a2a.unknown")
    if raised is None or name in known:
        return None
    reason = (
        f"{c.release.version} has no dispatcher {name} on an NVIDIA host, and stops where an expert layer is built."
    )
    step = Step(Gate.ENGINE, False, reason, raised)
    return Part(flag, Outcome.FAILS, reason, (raised,), (step,), instead=LEAVE_OUT if c.ep <= 1 else ())


def _on_deep_gemm(c: Context, flag: str, name: str) -> Part:
    on, proof = deep_gemm.state(c)
    if on is False and c.args.get("deepep-mode") == "normal":
        return c.unsure(flag, f"Whether {c.release.version} computes the experts behind {name} without DeepGEMM")
    if on is False:
        reason = (
            f"{name} computes the experts with DeepGEMM, which {c.release.version} does not have on SM {c.sm_text}."
        )
        asserted = places.place(c, "a2a.deepep")
        evidence = (*((asserted,) if asserted else ()), *proof)
        step = Step(Gate.LIBRARY, False, reason, evidence[0])
        return Part(flag, Outcome.FAILS, reason, evidence, (step,), instead=LEAVE_OUT if c.ep <= 1 else ())
    if on is None:
        what = f"{name} computes the experts with DeepGEMM. Whether that of {c.release.version} takes SM {c.sm_text}"
        return c.unsure(flag, what)
    reason = f"{name} computes the experts with DeepGEMM, which {c.release.version} has on SM {c.sm_text}."
    needs = (f"the {name} package and its network on every host",)
    return Part(flag, Outcome.ACTIVE, reason, proof, (Step(Gate.LIBRARY, True, reason, proof[0]),), needs=needs)

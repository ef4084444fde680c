"""Models with linear attention in most layers: which back ends the others may have (`attn_backend_wrapper`)."""

from __future__ import annotations

from validators.rules import constructors, places
from validators.rules.context import Context, checks
from validators.rules.interface import Gate, Outcome, Part, Step, Value

GDN = ("Qwen3Next", "Qwen3_5")  # architectures, by how their names begin
KDA = ("KimiLinear",)
_WRAPPER = "attn_backend_wrapper"
# what the wrapper asks of the model's configuration, for a model with GDN layers
_IS_GDN = {
    "runner.is_hybrid_gdn": True,
    "(cfg := runner.mambaish_config)": True,
    "cfg := runner.mambaish_config": True,
    "runner.hybrid_gdn_config": "its configuration",
}


def part(c: Context, flag: str, backend: str, instead: tuple[dict[str, Value], ...]) -> Part | None:
    """The stop on GPUs that the release calls Blackwell; None where the back end is allowed, or nobody can tell."""
    if not c.arch.startswith(GDN):
        return None
    apart = places.place(c, "gdn.allowed.12") if c.sm[0] == 12 else None
    listed = apart or places.place(c, "gdn.allowed")
    if listed is None:
        if flag != "attention-backend":
            return None
        stops, row = constructors.stop(c, _WRAPPER, **_IS_GDN)
        if not stops or row is None:
            return None
        return constructors.part(c, flag, f"{backend} for {c.arch}", _WRAPPER, instead=instead, known=_IS_GDN)
    if c.holds("is_blackwell()") is not True or (flag != "attention-backend" and not _by_stage(c)):
        return None
    allowed = places.value(c, "gdn.allowed.12" if apart else "gdn.allowed").split()
    if backend in allowed:
        return None
    reason = f"{c.release.version} has {', '.join(allowed)} for {c.arch} on SM {c.sm_text}, and stops at {backend}."
    return Part(flag, Outcome.FAILS, reason, (listed,), (Step(Gate.MODEL, False, reason, listed),), instead=instead)


def _by_stage(c: Context) -> bool:
    """Are the back ends of the stages asked, or the common one alone."""
    if c.given("prefill-attention-backend") and c.given("decode-attention-backend"):
        return True
    rows = checks(c.release).get(_WRAPPER, ())
    return any("decode_attention_backend_str in" in guard for row in rows for guard in row["guards"])

"""FlashInfer all-reduce fusion in all its spellings: flag, back end, what the engine turns on, off switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from validators.rules.context import Context, checks, place
from validators.rules.interface import Evidence, Expectation, Gate, Outcome, Part, Step, Value

SUBJECT = "FlashInfer all-reduce fusion: flag, back end, automatic enabling, off switch"
ON, BACKEND, OFF = (
    "enable-flashinfer-allreduce-fusion",
    "flashinfer-allreduce-fusion-backend",
    "enforce-disable-flashinfer-allreduce-fusion",
)
FLAGS = (ON, BACKEND, OFF)
SITES = (
    "fusion.attention",
    "fusion.next-layer",
    "fusion.next-layer.archs",
    "fusion.preinit",
    "fusion.preflight",
    "fusion.off",
    "fusion.deterministic",
)
ALWAYS = True
KERNEL = "allreduce_fusion_kernel"
MODULE = "gen_trtllm_comm_module"  # FlashInfer's kernel module of the trtllm back end
MNNVL = "gen_trtllm_mnnvl_comm_module"


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of the fusion once it is asked for."""

    outcome: Outcome
    reason: str
    steps: tuple[Step, ...] = ()
    becomes: str = ""


def judge(c: Context) -> Iterator[Part]:
    if not (c.has(ON) or c.has(BACKEND)):
        return
    on = c.args.get(ON) is True
    backend = c.args.get(BACKEND)
    off = c.args.get(OFF) is True
    unasked, unsure = _automatic(c)
    asked = str(backend) if backend else "auto"
    if off:
        yield _off(c)
    if not (on or backend):
        if unasked and not off:
            yield from _unasked(c, unasked)
        elif unsure and not off and c.tp > 1:
            yield _perhaps(c, unsure)
        return
    effect = _forced_off(c) if off else _effect(c, asked)
    part = _part(c, effect, BACKEND if backend else ON, unasked)
    yield part
    if on and backend:
        reason = f"--{BACKEND} {backend} is given too, and decides."
        yield replace(part, flag=ON, reason=f"{part.reason} {reason}")


def _part(c: Context, effect: Effect, flag: str, unasked: dict[str, Value] | None) -> Part:
    """The part of a flag that was given; what leaving it out would do decides what may stand in for it."""
    known = _known(effect)
    instead: tuple[dict[str, Value], ...] = ()
    if effect.outcome is Outcome.FAILS:
        if not unasked:
            instead = ({},)  # left out, nothing turns it on
        elif c.has(OFF):
            instead = ({OFF: True},)
    redundant = bool(unasked) and effect.outcome is Outcome.ACTIVE
    reason = effect.reason
    if redundant:
        reason += " The engine turns it on by itself here, so leaving it out changes nothing."
    return Part(
        flag=flag,
        outcome=effect.outcome,
        reason=reason,
        evidence=known,
        steps=effect.steps,
        expects=_expects(c, effect),
        becomes=effect.becomes,
        instead=instead,
        redundant=redundant,
    )


def _known(effect: Effect) -> tuple[Evidence, ...]:
    """Evidence of the gate that decided first, then of those before it."""
    decisive = [s.evidence for s in effect.steps if s.evidence and s.passed is not True]
    passed = [s.evidence for s in effect.steps if s.evidence and s.passed is True]
    return tuple(dict.fromkeys([*decisive, *passed]))


def _unasked(c: Context, row: dict[str, Value]) -> Iterator[Part]:
    backend = str(row["value"]) if row["value"] not in ("True", "backend") else "auto"
    effect = _effect(c, backend)
    if effect.outcome is Outcome.INERT:
        return  # on, without effect, and nobody asked for it
    flag = BACKEND if c.has(BACKEND) else ON
    proof = place(c.release, row)
    step = Step(Gate.RESOLUTION, True, f"{c.release.version} turns the fusion on by itself for {c.arch}.", proof)
    switch: dict[str, Value] = {OFF: True} if c.has(OFF) and c.row("fusion.off") else {}
    reason = f"{step.text} {effect.reason}"
    if effect.outcome is Outcome.FAILS and not switch:
        reason += " This release has no switch that keeps it off."
    yield Part(
        flag=flag,
        outcome=effect.outcome,
        reason=reason,
        evidence=(proof, *_known(effect)),
        steps=(step, *effect.steps),
        expects=_expects(c, effect),
        becomes=effect.becomes,
        off=switch if effect.outcome is Outcome.FAILS else {},
        automatic=True,
        value=True if flag == ON else backend,
    )


def _perhaps(c: Context, row: dict[str, Value]) -> Part:
    proof = place(c.release, row)
    reason = f"Whether {c.release.version} turns the fusion on by itself for {c.arch} here is not known."
    step = Step(Gate.RESOLUTION, None, reason, proof)
    flag = BACKEND if c.has(BACKEND) else ON
    return Part(flag, Outcome.UNKNOWN, reason, (proof,), (step,), automatic=True, value=None)


def _automatic(c: Context) -> tuple[dict[str, Value] | None, dict[str, Value] | None]:
    """The place that turns the fusion on unasked in this case, and one of which nobody can tell."""
    if not c.arch:
        return None, None
    unsure: dict[str, Value] | None = None
    given = {name: value for name, value in c.args.items() if name not in (ON, BACKEND)}
    bare = Context(c.case, c.release, given, c.sm_text)
    for row in c.release.gates.get("switches", ()):
        if row["flag"] not in (ON, BACKEND) or c.arch not in row["test"]:
            continue
        held = bare.holds(row["test"])
        if held:
            return row, None
        if held is None:
            unsure = row
    return None, unsure


def _off(c: Context) -> Part:
    proof = c.proof("fusion.off")
    reason = "The fusion is kept off, whatever the model and the GPU; only this switch does that."
    expects = (Expectation("kernel", absent=KERNEL, where="every rank", source=proof[0] if proof else None),)
    step = Step(Gate.RESOLUTION, True, reason, proof[0] if proof else None)
    return Part(OFF, Outcome.ACTIVE, reason, proof, (step,), expects)


def _forced_off(c: Context) -> Effect:
    proof = c.proof("fusion.off")
    reason = f"--{OFF} is given too and wins: the fusion is off."
    return Effect(Outcome.INERT, reason, (Step(Gate.RESOLUTION, False, reason, proof[0] if proof else None),))


def _step(c: Context, gate: Gate, passed: bool | None, text: str, site: str) -> Step:
    proof = c.proof(site)
    return Step(gate, passed, text, proof[0] if proof else None)


_EFFECTS: dict[tuple[object, ...], Effect] = {}


def _effect(c: Context, backend: str) -> Effect:
    """What becomes of the fusion; the same question is answered once."""
    case = c.case
    key = (
        *(c.release.key, c.sm_text, backend, c.tp, c.nnodes, c.dp_attention, c.arch, c.flashinfer_version),
        *(case.interconnect, case.multicast, case.p2p, case.flashinfer, c.args.get("enable-deterministic-inference")),
    )
    if key not in _EFFECTS:
        if len(_EFFECTS) > 20_000:
            _EFFECTS.clear()
        _EFFECTS[key] = _through_the_gates(c, backend)
    return _EFFECTS[key]


def _through_the_gates(c: Context, backend: str) -> Effect:
    """The gates in order; the first that stops it says what happens."""
    version, sm = c.release.version, c.sm_text
    if c.row("fusion.attention") is None:
        reason = f"Where {version} applies the fusion is not known."
        return Effect(Outcome.UNKNOWN, reason, (Step(Gate.ENGINE, None, reason),))
    if c.get("enable-deterministic-inference") is True and c.row("fusion.deterministic"):
        reason = "Deterministic inference is on, and turns the fusion off with a warning."
        return Effect(
            Outcome.ALTERED, reason, (_step(c, Gate.RESOLUTION, False, reason, "fusion.deterministic"),), becomes="off"
        )
    if c.tp <= 1:
        stopped = _stops(c, backend, ranks=1)
        if stopped:
            return stopped
        reason = "With one tensor-parallel rank there is no all-reduce to fuse."
        return Effect(Outcome.INERT, reason, (_step(c, Gate.TOPOLOGY, False, reason, "fusion.attention"),))
    stopped = _stops(c, backend, ranks=c.tp)
    if stopped:
        return stopped
    if backend == "cutedsl":
        return _cutedsl(c)
    applies = c.test("fusion.attention", **_locals(backend))
    if applies is False and c.dp_attention and _without_dp_attention(c, backend) is not False:
        return _beside_dp_attention(c)
    if applies is None:
        reason = f"The condition under which {version} applies the fusion could not be evaluated here."
        return Effect(Outcome.UNKNOWN, reason, (_step(c, Gate.ENGINE, None, reason, "fusion.attention"),))
    if not applies:
        return _past_the_gate(c, backend)
    passed = _step(c, Gate.ENGINE, True, f"{version} applies the fusion on SM {sm}.", "fusion.attention")
    return _library(c, backend, (passed,))


def _locals(backend: str) -> dict[str, object]:
    """Local names in the engine's conditions, for batches that the fusion is meant for."""
    return {
        "hasattr(layernorm, 'forward_with_allreduce_fusion')": True,
        "hidden_states.shape[0] <= 128": True,
        "hidden_states.shape[0] <= 2048": True,
        "hidden_states.shape[0]": 1,
        "batch_size": 1,
        "FUSE_ALLREDUCE_MAX_BATCH_SIZE": 2048,
        "is_flashinfer_allreduce_unavailable()": False,
        "uses_cutedsl_ar_fusion()": False,
        "get_global_server_args().enable_flashinfer_allreduce_fusion": True,
        "global_server_args_dict['enable_flashinfer_allreduce_fusion']": True,
        "global_server_args_dict.get('enable_flashinfer_allreduce_fusion', False)": True,
        "get_global_server_args().flashinfer_allreduce_fusion_backend": backend,
        "get_server_args().flashinfer_allreduce_fusion_backend": backend,
        "get_exec().comm.flashinfer_allreduce_fusion_backend": backend,
        "self.is_last_layer": False,
        "self._context.tp_size": 2,
    }


def _without_dp_attention(c: Context, backend: str) -> bool | None:
    return c.test("fusion.attention", **_locals(backend), **{"is_dp_attention_enabled()": False})


def _beside_dp_attention(c: Context) -> Effect:
    reason = "With DP attention the layers communicate by another path, which is never fused."
    return Effect(Outcome.INERT, reason, (_step(c, Gate.TOPOLOGY, False, reason, "fusion.attention"),))


def _stops(c: Context, backend: str, ranks: int) -> Effect | None:
    """Does resolving the back end raise at start-up. It is resolved where a group has more than one rank."""
    if ranks <= 1 and backend != "cutedsl":
        return None
    nodes = c.nnodes > 1
    for row in checks(c.release).get("_resolve_backend", ()):
        known = {"backend": backend, "is_multi_node": nodes, "_mnnvl_supported(is_multi_node)": None}
        known["_mnnvl_supported(is_multi_node)"] = _mnnvl(c, nodes)
        if all(c.holds(guard, **known) for guard in row["guards"]):
            reason = f"{c.release.version} stops the start on SM {c.sm_text}: {row['text'].rstrip('.')}."
            proof = place(c.release, row)
            gate = Gate.TOPOLOGY if nodes and "ulti-node" in row["text"] else Gate.ENGINE
            return Effect(Outcome.FAILS, reason, (Step(gate, False, reason, proof),))
    return _across_nodes(c, backend)


def _across_nodes(c: Context, backend: str) -> Effect | None:
    """The tests of nodes that stand in the same function: trtllm is for one node, mnnvl needs SM 10.x for several."""
    rows = checks(c.release).get("_resolve_backend", ())
    if c.nnodes <= 1 or not rows or backend not in ("trtllm", "mnnvl"):
        return None
    if backend == "mnnvl" and _mnnvl(c, nodes=True):
        return None
    what = "is for one node" if backend == "trtllm" else f"needs SM 10.x for several nodes, this is SM {c.sm_text}"
    reason = f"{c.release.version} stops the start on {c.nnodes} nodes: back end {backend} {what}."
    proof = place(c.release, rows[0])
    return Effect(Outcome.FAILS, reason, (Step(Gate.TOPOLOGY, False, reason, proof),))


def _mnnvl(c: Context, nodes: bool) -> bool:
    """`_mnnvl_supported`: SM 10.x anywhere, SM 9.0 on one node."""
    return c.sm[0] == 10 or (c.sm == (9, 0) and not nodes)


def _cutedsl(c: Context) -> Effect:
    """Its own fused path: the start stops where the model installs none, which only some models do."""
    passed = _step(c, Gate.ENGINE, True, f"{c.release.version} has it on SM {c.sm_text}.", "fusion.preinit")
    if c.arch.startswith("MiMoV2"):
        return _topology(c, (passed,))
    reason = f"Whether {c.arch or 'this model'} installs the CuTe DSL fusion of {c.release.version} is not known."
    return Effect(Outcome.UNKNOWN, reason, (passed, Step(Gate.MODEL, None, reason)))


def _past_the_gate(c: Context, backend: str) -> Effect:
    """The attention path tests the SM and says no; what else of the fusion runs all the same."""
    version, sm = c.release.version, c.sm_text
    stop = _step(c, Gate.ENGINE, False, f"{version} does not apply the fusion on SM {sm}.", "fusion.attention")
    if c.row("fusion.preinit"):
        if c.builds(MODULE) is False:
            reason = f"{version} warns at start-up that FlashInfer has no kernel for SM {sm}, and turns the fusion off."
            library = _library_step(c, MODULE, False)
            return Effect(
                Outcome.ALTERED,
                reason,
                (stop, _step(c, Gate.ENGINE, False, reason, "fusion.preinit"), library),
                becomes="off",
            )
        reason = f"{version} prepares the fusion at start-up and never applies it on SM {sm}."
        return Effect(Outcome.INERT, reason, (stop,))
    row = c.row("fusion.next-layer")
    unguarded = (
        row is not None
        and "apply_flashinfer" not in row["test"]
        and "sm" not in row["test"].lower().replace("params", "")
    )
    if not unguarded:
        reason = f"{version} takes the flag and never applies the fusion on SM {sm}, without a word."
        return Effect(Outcome.INERT, reason, (stop,))
    return _unguarded(c, stop)


def _unguarded(c: Context, stop: Step) -> Effect:
    """Releases whose "MLP to next layer" path has no SM test: it calls FlashInfer on any GPU."""
    version, sm = c.release.version, c.sm_text
    table = c.row("fusion.next-layer.archs") or {}
    if c.arch and c.arch not in table.get("value", ()) and c.arch not in table.get("maybe", ()):
        reason = f"{version} takes the flag and never applies the fusion on SM {sm} for {c.arch}."
        return Effect(Outcome.INERT, reason, (stop, _step(c, Gate.MODEL, False, reason, "fusion.next-layer.archs")))
    if c.arch not in table.get("value", ()):
        reason = f"{version} may fuse the MLP of {c.arch or 'this model'} without testing the SM; not known."
        return Effect(Outcome.UNKNOWN, reason, (stop, _step(c, Gate.MODEL, None, reason, "fusion.next-layer.archs")))
    path = _step(
        c, Gate.ENGINE, True, f"The path from MLP to next layer of {c.arch} does not test the SM.", "fusion.next-layer"
    )
    builds = c.builds(MODULE)
    library = _library_step(c, MODULE, builds)
    if builds is False:
        reason = (
            f"{version} calls it on SM {sm}, where FlashInfer {c.flashinfer_version} has no kernel: the start dies."
        )
        return Effect(Outcome.FAILS, reason, (path, library, stop))
    reason = f"Half of the fusion would run on SM {sm} with FlashInfer {c.flashinfer_version}; nobody has seen that."
    return Effect(Outcome.UNKNOWN, reason, (path, library, stop))


def _library_step(c: Context, module: str, builds: bool | None) -> Step:
    proof = c.library_proof(module)
    found = c.generator(module)
    majors = ", ".join(map(str, found.majors)) if found and found.majors else "any"
    text = f"FlashInfer {c.flashinfer_version} builds it for SM majors {majors}."
    if builds is None:
        text = f"Which GPUs FlashInfer {c.flashinfer_version or '(unknown)'} builds it for is not known."
    return Step(Gate.LIBRARY, builds, text, proof[0] if proof else None)


def _library(c: Context, backend: str, steps: tuple[Step, ...]) -> Effect:
    """The engine would run it: is there a kernel, and does the topology let it."""
    version, sm = c.release.version, c.sm_text
    module = MNNVL if backend in ("auto", "mnnvl") and c.row("fusion.preinit") and c.sm[0] == 10 else MODULE
    if not checks(c.release).get("_resolve_backend"):
        module = MODULE
    builds = c.builds(module)
    steps = (*steps, _library_step(c, module, builds))
    if builds is False:
        if c.row("fusion.preinit"):
            reason = f"FlashInfer {c.flashinfer_version} has no kernel for SM {sm}: {version} warns and turns it off."
            return Effect(Outcome.ALTERED, reason, steps, becomes="off")
        reason = f"FlashInfer {c.flashinfer_version} has no kernel for SM {sm}: the start dies."
        return Effect(Outcome.FAILS, reason, steps)
    if builds is None:
        return Effect(Outcome.UNKNOWN, steps[-1].text, steps)
    if c.case.flashinfer and c.release.flashinfer and c.case.flashinfer != c.release.flashinfer:
        reason = f"{version} pins FlashInfer {c.release.flashinfer}; with {c.case.flashinfer} nobody has seen it run."
        return Effect(Outcome.UNKNOWN, reason, (*steps, Step(Gate.LIBRARY, None, reason)))
    return _topology(c, steps)


def _topology(c: Context, steps: tuple[Step, ...]) -> Effect:
    version = c.release.version
    if c.nnodes > 1 and not checks(c.release).get("_resolve_backend"):
        reason = f"{version} does not test the number of nodes; its own comment says one node only."
        return Effect(Outcome.UNKNOWN, reason, (*steps, Step(Gate.TOPOLOGY, None, reason)))
    bare = c.case.interconnect == "pcie" or c.case.multicast is False
    if bare and c.row("fusion.preflight"):
        reason = f"Without NVLink multicast the preflight of {version} fails; it warns and turns the fusion off."
        return Effect(
            Outcome.ALTERED, reason, (*steps, _step(c, Gate.TOPOLOGY, False, reason, "fusion.preflight")), becomes="off"
        )
    if c.case.interconnect == "pcie" and c.case.p2p is not True:
        reason = "Over PCIe it needs peer-to-peer access between the GPUs, which nobody has tested."
        return Effect(Outcome.UNKNOWN, reason, (*steps, Step(Gate.TOPOLOGY, None, reason)))
    reason = f"{version} runs it on SM {c.sm_text} with TP {c.tp}, in batches of up to 2048 tokens."
    return Effect(Outcome.ACTIVE, reason, steps)


def _expects(c: Context, effect: Effect) -> tuple[Expectation, ...]:
    source = next((step.evidence for step in effect.steps if step.evidence), None)
    if effect.outcome is Outcome.ACTIVE:
        return (Expectation("kernel", present=KERNEL, where="every rank", source=source),)
    if effect.outcome in (Outcome.INERT, Outcome.ALTERED):
        return (Expectation("kernel", absent=KERNEL, where="every rank", source=source),)
    return ()

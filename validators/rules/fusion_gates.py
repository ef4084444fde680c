"""What becomes of the all-reduce fusion once asked for: the engine's gates, the model, the library, the topology."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from validators.rules import atoms, fused_models
from validators.rules.context import Context, checks, place
from validators.rules.interface import Evidence, Gate, Outcome, Step

ON, BACKEND, OFF = (
    "enable-flashinfer-allreduce-fusion",
    "flashinfer-allreduce-fusion-backend",
    "enforce-disable-flashinfer-allreduce-fusion",
)
MODULE = "gen_trtllm_comm_module"  # FlashInfer's kernel module of the trtllm back end
MNNVL = "gen_trtllm_mnnvl_comm_module"
_BATCH = re.compile(r"shape\[0\] <= (\d+)")


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of the fusion once it is asked for."""

    outcome: Outcome
    reason: str
    steps: tuple[Step, ...] = ()
    becomes: str = ""


def _proof(c: Context, site: str) -> Evidence | None:
    found = c.proof(site)
    if found:
        return found[0]
    return fused_models.place(c, "gate") if site == "fusion.attention" else None


def _step(c: Context, gate: Gate, passed: bool | None, text: str, site: str) -> Step:
    return Step(gate, passed, text, _proof(c, site))


_EFFECTS: dict[tuple[object, ...], Effect] = {}


def through_the_gates(c: Context, backend: str) -> Effect:
    """What becomes of the fusion; the same question is answered once."""
    case = c.case
    key = (
        *(c.release.key, c.sm_text, backend, c.tp, c.nnodes, c.dp_attention, c.arch, c.flashinfer_version),
        *(case.interconnect, case.multicast, case.p2p, case.flashinfer, c.args.get("enable-deterministic-inference")),
        *(repr(c.args.get(flag)) for flag in ("moe-a2a-backend", *atoms.flags_of(c.release, _site(c)))),
    )
    if key not in _EFFECTS:
        if len(_EFFECTS) > 20_000:
            _EFFECTS.clear()
        _EFFECTS[key] = _gates(c, backend)
    return _EFFECTS[key]


def _gates(c: Context, backend: str) -> Effect:
    """The gates in order; the first that stops it says what happens."""
    version, sm = c.release.version, c.sm_text
    if not _site(c):
        reason = f"Where {version} applies the fusion is not known."
        return Effect(Outcome.UNKNOWN, reason, (Step(Gate.ENGINE, None, reason),))
    if c.get("enable-deterministic-inference") is True:
        proof = _proof(c, "fusion.deterministic") or fused_models.place(c, "deterministic")
        if proof is not None:
            reason = "Deterministic inference is on, and turns the fusion off."
            return Effect(Outcome.ALTERED, reason, (Step(Gate.RESOLUTION, False, reason, proof),), becomes="off")
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
    applies = c.holds(_site(c), **_locals(backend))
    if applies is False and c.dp_attention and _without_dp_attention(c, backend) is not False:
        return _beside_dp_attention(c)
    if c.dp_attention and "is_dp_attention_enabled" not in _site(c):
        return _old_dp_attention(c, backend)
    if applies is None:
        reason = f"The condition under which {version} applies the fusion could not be evaluated here."
        return Effect(Outcome.UNKNOWN, reason, (_step(c, Gate.ENGINE, None, reason, "fusion.attention"),))
    if not applies:
        return _past_the_gate(c, backend)
    passed = _step(c, Gate.ENGINE, True, f"{version} applies the fusion on SM {sm}.", "fusion.attention")
    return _model(c, passed) or _scattered(c, passed) or _library(c, backend, (passed,))


def _site(c: Context) -> str:
    """The layers' own test, in the engine's words; "" where it was not found in this release."""
    row = c.row("fusion.attention")
    return str(row["test"]) if row and row.get("test") else fused_models.text(c, "gate")


def _model(c: Context, passed: Step) -> Effect | None:
    """Does the model reach a fused place at all. An architecture that the release turns it on for does."""
    state = fused_models.state(c)
    if state not in ("plain", "unsure") or _listed(c):
        return None
    home = fused_models.place(c, "home")
    if state == "unsure":
        reason = f"Whether the layers of {c.arch} reach the fusion in {c.release.version} is not known."
        return Effect(Outcome.UNKNOWN, reason, (passed, Step(Gate.MODEL, None, reason, home)))
    reason = f"{c.release.version} takes the flag; {c.arch} completes its sums itself, so nothing of it is fused."
    return Effect(Outcome.INERT, reason, (passed, Step(Gate.MODEL, False, reason, home)))


def _scattered(c: Context, passed: Step) -> Effect | None:
    """With an all-to-all back end each rank has other tokens after the experts; no release turns the fusion on then."""
    found = c.get("moe-a2a-backend")
    if found in (None, "none") or fused_models.state(c) == "":
        return None
    proof = next((place(c.release, row) for row in _switches(c) if "moe_a2a_backend" in row["test"]), None)
    reason = f"Whether sums are still fused beside --moe-a2a-backend {found} is not known."
    return Effect(Outcome.UNKNOWN, reason, (passed, Step(Gate.TOPOLOGY, None, reason, proof)))


def _switches(c: Context) -> list[dict[str, Any]]:
    """Where the release turns the fusion on by itself."""
    return [row for row in c.release.gates.get("switches", ()) if row["flag"] in (ON, BACKEND)]


def _listed(c: Context) -> bool:
    """Among the architectures that the release turns the fusion on for by itself."""
    return any(f"'{c.arch}'" in row["test"] for row in _switches(c))


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
    return c.holds(_site(c), **_locals(backend), **{"is_dp_attention_enabled()": False})


def _old_dp_attention(c: Context, backend: str) -> Effect:
    """Releases with another branch for DP attention; the path to the next layer may not have one."""
    row = c.row("fusion.next-layer")
    follows = c.holds(row["test"], **_locals(backend)) if row and row.get("test") else False
    if row and follows is not None and "models/" in row["file"]:
        follows = not follows  # there it is the test on which a model does not
    if follows is False or fused_models.state(c) in ("plain", "fused"):
        return _beside_dp_attention(c)
    step = _step(c, Gate.TOPOLOGY, None, "The path to the next layer takes DP attention too.", "fusion.next-layer")
    if fused_models.state(c) == "marked" and c.builds(MODULE) is False:
        return _unguarded(c, step)
    reason = f"{c.release.version} hands on sums that DP attention has to scatter; nobody has seen it run."
    return Effect(Outcome.UNKNOWN, reason, (replace(step, text=reason),))


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
    state = fused_models.state(c)
    sure = c.arch in table.get("value", ()) or state == "marked"
    if c.arch and not sure and (state in ("plain", "fused") or c.arch not in table.get("maybe", ())):
        reason = f"{version} takes the flag and never applies the fusion on SM {sm} for {c.arch}."
        return Effect(Outcome.INERT, reason, (stop, _step(c, Gate.MODEL, False, reason, "fusion.next-layer.archs")))
    if not sure:
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
    most = _BATCH.search(_site(c))
    tokens = most[1] if most else "2048"
    reason = f"{version} runs it on SM {c.sm_text} with TP {c.tp}, in batches of up to {tokens} tokens."
    return Effect(Outcome.ACTIVE, reason, steps)

"""Kernels behind attention back ends for which a release tests no GPU by itself: what the kernel packages have."""

from __future__ import annotations

from collections.abc import Iterator

from validators.rules import kernel_places, places
from validators.rules.attention_models import latent
from validators.rules.context import Context
from validators.rules.interface import Evidence, Gate, Outcome, Part, Step, Value

Stages = frozenset[str]  # what a flag decides: "prefill", "decode"


def part(c: Context, flag: str, backend: str, stages: Stages, instead: tuple[dict[str, Value], ...]) -> Part | None:
    """What the kernels make of it on this SM; None where the packages do not decide it."""
    answer = {"flashmla": _flashmla, "cutlass_mla": _cutlass, "fa4": _fa4}.get(backend)
    found = answer(c, stages) if answer else None
    if found is None:
        return None
    runs, what, proof = found
    verb = "runs" if runs else "stops with the first batch"
    reason = f"{what}: attention back end {backend} {verb} on SM {c.sm_text}."
    step = Step(Gate.LIBRARY, runs, reason, proof)
    if runs:
        return Part(flag, Outcome.ACTIVE, reason, (proof,), (step,))
    return Part(flag, Outcome.FAILS, reason, (proof,), (step,), instead=instead)


Answer = tuple[bool, str, Evidence] | None


def images(c: Context, name: str) -> kernel_places.Row | None:
    """Images of a shared object of the engine's kernels; FlashMLA has a package of its own in the newest releases."""
    if name == "flashmla" and "sgl-flash-mla" in c.release.pins:
        return kernel_places.of(c, "sgl-flash-mla", "images.flashmla")
    return kernel_places.of(c, kernel_places.kernels(c), f"images.{name}")


def _listed(row: kernel_places.Row) -> str:
    return f"{row.proof.artifact} has device code for {', '.join(row.words)} in {row.proof.file}"


def _flashmla(c: Context, stages: Stages) -> Answer:
    """Decoding is FlashMLA's dense kernel, prefill FlashInfer's."""
    if "decode" not in stages or latent(c) is not True:
        return None
    outside = places.place(c, "attn.package.flashmla")
    if outside is not None:
        # a package that the release does not install; all that it had then was for SM 9.0 and 10.x
        if c.sm[0] in (9, 10) or "flash-mla" in c.case.packages:
            return None
        return False, f"{c.release.version} imports flash_mla, which it does not install", outside
    row = images(c, "flashmla")
    if row is None:
        return None
    package = row.proof.artifact.rpartition("-")[0]
    dense = kernel_places.of(c, package, "flashmla.dense")
    if dense is not None and c.sm[0] != 9:
        return False, f"{dense.proof.artifact} decodes with it on SM 9.0 only", dense.proof
    if c.sm[0] not in row.majors:
        return False, _listed(row), row.proof
    return (True, _listed(row), row.proof) if c.sm[0] == 9 else None


def _cutlass(c: Context, stages: Stages) -> Answer:
    if "decode" not in stages or latent(c) is not True:
        return None
    row = kernel_places.of(c, kernel_places.kernels(c), "cutlass_mla")
    if row is None:
        return None
    return c.sm_text == "10.0", f"{row.proof.artifact} tests for SM 10.0 exactly", row.proof


def _fa4(c: Context, stages: Stages) -> Answer:
    decoding = places.place(c, "attn.fa4.decode")
    if decoding is not None and "decode" in stages:
        return False, f"{c.release.version} decodes with FlashAttention 3 only", decoding
    if latent(c) is None:
        return None
    if latent(c) and "decode" in stages:
        return _fa4_latent(c)
    answers = list(_fa4_interfaces(c, paged=not latent(c)))
    if not answers or any(answer is None for answer in answers) or len({answer[0] for answer in answers if answer}) > 1:
        return None  # versions that the host may have differ
    return answers[-1]


def _fa4_latent(c: Context) -> Answer:
    """Decoding for latent attention hands the kernel a second query."""
    refused = places.place(c, "attn.fa4.qv")
    if refused is not None:
        return False, f"FlashAttention 4 of {c.release.version} takes no latent query", refused
    takes = places.place(c, "fa4.latent")
    if takes is None or c.sm[0] == 12:  # SM 12.x has a kernel of its own from 0.5.18 on
        return None
    majors = places.value(c, "fa4.latent").split()
    return (
        str(c.sm[0]) in majors,
        f"FlashAttention 4 of {c.release.version} takes a latent query on SM 10 and 11",
        takes,
    )


def _fa4_interfaces(c: Context, *, paged: bool) -> Iterator[Answer]:
    """What the interface says, in each version of it that the host can have."""
    source = places.value(c, "attn.fa4.source")
    if source == "own":
        name = f"FlashAttention 4 of {c.release.version}"
        majors = places.place(c, "fa4.majors")
        page = places.place(c, f"fa4.paged.{c.sm[0]}") if paged else None
        if majors is not None:
            yield _fa4_answer(c, name, places.value(c, "fa4.majors").split(), majors, page)
        return
    package = kernel_places.kernels(c) if source == "sgl-kernel" else source
    for version in kernel_places.read(c, package):
        takes = kernel_places.row(package, version, "fa4.majors")
        refuses = kernel_places.row(package, version, f"fa4.paged.{c.sm[0]}") if paged else None
        if takes is None:
            yield None
            continue
        name = f"FlashAttention 4 of {package} {version}"
        yield _fa4_answer(c, name, takes.words, takes.proof, refuses.proof if refuses else None)


def _fa4_answer(
    c: Context, name: str, majors: list[str] | tuple[str, ...], proof: Evidence, page: Evidence | None
) -> Answer:
    if str(c.sm[0]) not in majors:
        return False, f"{name} runs on SM {', '.join(majors)} only", proof
    if page is not None:
        return False, f"{name} reads no paged cache there", page
    return True, f"{name} runs on SM {', '.join(majors)}", proof

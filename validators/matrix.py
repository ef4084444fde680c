"""Flags against SM versions, for one release: what the gate says of every value that a rule speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from validators.case import Case
from validators.judge import judge
from validators.knowledge import load_sglang
from validators.knowledge.model import Flag
from validators.rules import by_flag
from validators.verdict import Outcome, Value, Verdict

SMS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")


# classes of models that gates tell apart, by an architecture that stands for each
MODELS = {"dense": "LlamaForCausalLM", "experts": "Qwen3MoeForCausalLM", "latent attention": "DeepseekV3ForCausalLM"}


@dataclass(frozen=True, slots=True)
class Row:
    """One flag with one value, on every SM."""

    flag: str
    value: Value
    cells: dict[str, Verdict]  # SM -> verdict
    model: str = ""  # the class of model it holds for, where that decides and nobody named an architecture

    @property
    def differs(self) -> bool:
        """Whether the SM decides anything."""
        return len({verdict.outcome for verdict in self.cells.values()}) > 1

    @property
    def plain(self) -> bool:
        """Active everywhere: nothing to say."""
        return all(verdict.outcome is Outcome.ACTIVE for verdict in self.cells.values())


def rows(base: Case, sms: tuple[str, ...] = SMS, flags: tuple[str, ...] = ()) -> list[Row]:
    """A row per flag and value; `base` says release, topology and model, and may hold flags that stand beside.

    Raises UnknownReleaseError for a release without knowledge.
    """
    release = load_sglang(base.sglang)
    asked = [flag for flag in (flags or sorted(by_flag())) if flag in release.flags]
    return [row for flag in asked for value in values(release.flags[flag]) for row in _by_model(base, flag, value, sms)]


def _by_model(base: Case, flag: str, value: Value, sms: tuple[str, ...]) -> list[Row]:
    """One row; or one for each class of model, where the class settles what is not known without it."""
    row = _row(base, flag, value, sms)
    if base.model_arch or all(verdict.outcome is not Outcome.UNKNOWN for verdict in row.cells.values()):
        return [row]
    each = [replace(_row(replace(base, model_arch=a), flag, value, sms), model=name) for name, a in MODELS.items()]
    told = {tuple(verdict.outcome for verdict in one.cells.values()) for one in each}
    return each if len(told) > 1 else [row]


def values(flag: Flag) -> Iterator[Value]:
    """Values worth asking for: on for a switch, every choice else. Numbers and free text have none."""
    if flag.refused:
        return
    if not flag.takes_value:
        yield True
    elif flag.choices:
        yield from (choice for choice in flag.choices if choice is not None)


def _row(base: Case, flag: str, value: Value, sms: tuple[str, ...]) -> Row:
    cells = {}
    for sm in sms:
        judged = judge(replace(base, sm=(sm,), args={**base.args, flag: value}))
        cells[sm] = next(v for v in judged.verdicts if v.flag == flag)
    return Row(flag, value, cells)

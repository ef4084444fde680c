"""What a rule may ask: the case, the release's facts, and the SM sets of the named places it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from validators import conditions
from validators.case import Case
from validators.knowledge.loader import UnknownReleaseError, load_flashinfer
from validators.knowledge.model import Flag, Flashinfer, Generator, Sglang
from validators.rules import atoms
from validators.rules.interface import Part
from validators.verdict import Evidence, Expectation, Gate, Outcome, Step, Value

Sm = tuple[int, int]


_NAMED: dict[str, dict[str, dict[str, Any]]] = {}
_HOSTS: dict[tuple[object, ...], int] = {}  # all of a case but its flags, by number
_HELD: dict[tuple[Any, ...], bool | None] = {}  # conditions answered before, for the same host, model and flags
_CHECKS: dict[str, dict[str, list[dict[str, Any]]]] = {}
_PROOFS: dict[tuple[str, str], Evidence | None] = {}


def _named(release: Sglang) -> dict[str, dict[str, Any]]:
    """The named sites of a release; read once."""
    rows = _NAMED.get(release.key)
    if rows is None:
        rows = _NAMED[release.key] = {
            row["name"]: row for row in (*release.gates.get("named", ()), *release.gates.get("tests", ()))
        }
    return rows


def checks(release: Sglang) -> dict[str, list[dict[str, Any]]]:
    """The places where a release stops the start depending on the SM, by the function they stand in."""
    found = _CHECKS.get(release.key)
    if found is None:
        found = _CHECKS[release.key] = {}
        places, texts = release.gates.get("places", ()), release.gates.get("conditions", ())
        for (number, line), quote, guards, text in release.gates.get("checks", ()):
            file, symbol = places[number]
            row = {"file": file, "symbol": symbol, "line": line, "condition": quote, "text": text}
            row["guards"] = [texts[guard] for guard in guards]
            found.setdefault(symbol.rsplit(".", 1)[-1], []).append(row)
    return found


def _proof(release: Sglang, name: str) -> Evidence | None:
    key = (release.key, name)
    if key not in _PROOFS:
        row = _named(release).get(name)
        _PROOFS[key] = None if row is None or row.get("missing") else place(release, row)
    return _PROOFS[key]


def place(release: Sglang, row: dict[str, Any]) -> Evidence:
    """Evidence of any row that has file, symbol, line and condition."""
    return Evidence(
        release.artifact.name, row["file"], row.get("symbol", ""), row.get("line", 0), row.get("condition", "")
    )


class Context:
    """One case as the rules see it. Read only."""

    __slots__ = ("_flashinfer", "_host", "_key", "_shown", "args", "case", "followed", "release", "sm", "sm_text")

    def __init__(self, case: Case, release: Sglang, args: Mapping[str, Value], sm: str) -> None:
        self.case = case
        self.release = release
        self.args = args  # canonical flag -> value as given
        self.sm_text = sm
        major, _, minor = sm.partition(".")
        self.sm: Sm = (int(major or 0), int(minor or 0))  # (0, 0): no GPU facts
        environment = tuple(sorted(case.env.items())) if case.env else ()
        checkpoint = tuple([(name, repr(value)) for name, value in case.checkpoint.items()])
        packages = tuple(case.packages.items())
        told = (
            release.key,
            sm,
            self.arch,
            case.model_type,
            case.nnodes,
            case.gpu_name,
            environment,
            checkpoint,
            packages,
        )
        self._host = _HOSTS.setdefault(told, len(_HOSTS))
        # values as parts of a key: not given, True and 1 are three different things
        self._shown = {flag: repr(value) for flag, value in args.items()}
        self.followed: dict[Any, Any] = {}  # what `resolved` found out of this case
        self._flashinfer: Flashinfer | bool | None = False
        self._key: tuple[object, ...] | None = None

    def varied(self, changes: Mapping[str, Value]) -> Context:
        """The same case with other values of some flags."""
        out = object.__new__(Context)
        out.case, out.release, out.sm, out.sm_text = self.case, self.release, self.sm, self.sm_text
        out.args = {**self.args, **changes}
        out._host = self._host
        out._shown = {**self._shown, **{flag: repr(value) for flag, value in changes.items()}}
        out._flashinfer, out._key, out.followed = self._flashinfer, None, {}
        return out

    def key(self) -> tuple[object, ...]:
        """All that conditions of the engine are evaluated on: the same for two cases that they do not tell apart."""
        if self._key is None:
            self._key = (self._host, *sorted(self._shown.items()))
        return self._key

    def host(self) -> int:
        """A number for all of a case but its flags: the same for two cases that differ in nothing else."""
        return self._host

    def shown(self) -> dict[str, str]:
        """The flags given, their values as parts of a key."""
        return self._shown

    # flags

    def has(self, flag: str) -> bool:
        """Does the release know this flag."""
        return flag in self.release.flags

    def given(self, flag: str) -> bool:
        return flag in self.args

    def get(self, flag: str, otherwise: Value = None) -> Value:
        """The value given, else the release's default, else `otherwise`."""
        if flag in self.args:
            return self.args[flag]
        found = self.release.flags.get(flag)
        if found is None:
            return otherwise
        default: Value = found.default
        return otherwise if default is None else default

    def flag(self, name: str) -> Flag | None:
        return self.release.flags.get(name)

    def choice(self, flag: str, value: str) -> bool:
        """Does this release take `value` for `flag`; True as well where its choices are not known."""
        found = self.release.flags.get(flag)
        return found is not None and (found.choices is None or value in found.choices)

    def number(self, flag: str, otherwise: int = 1) -> int:
        value = self.get(flag, otherwise)
        return value if isinstance(value, int) and not isinstance(value, bool) else otherwise

    # the service

    @property
    def tp(self) -> int:
        return self.number("tp-size")

    @property
    def pp(self) -> int:
        return self.number("pp-size")

    @property
    def dp(self) -> int:
        return self.number("dp-size")

    @property
    def ep(self) -> int:
        return self.number("ep-size")

    @property
    def nnodes(self) -> int:
        return max(self.number("nnodes"), self.case.nnodes)

    @property
    def dp_attention(self) -> bool:
        """Asked for, over more than one rank: with a size of 1 every release goes on without it."""
        asked = self.get("enable-dp-attention", False) is True and self.dp > 1
        return asked or self.number("attn-dp-size") > 1

    @property
    def arch(self) -> str:
        """Architecture of the model ("Qwen3MoeForCausalLM"), or "" where nobody could tell."""
        if self.case.model_arch:
            return self.case.model_arch
        named = self.case.checkpoint.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""

    # knowledge

    def row(self, name: str) -> dict[str, Any] | None:
        """The named site as it was extracted, or None where this release has none."""
        row = _named(self.release).get(name)
        return None if row is None or row.get("missing") else row

    def allows(self, name: str) -> bool | None:
        """Does the case's SM pass the site; None: no such site, or its condition could not be evaluated."""
        row = self.row(name)
        if row is None:
            return None
        if row.get("sms") is not None:
            return self.sm_text in row["sms"]
        return self.holds(row["test"]) if "test" in row else None

    def proof(self, name: str) -> tuple[Evidence, ...]:
        found = _proof(self.release, name)
        return (found,) if found else ()

    @property
    def flashinfer_version(self) -> str:
        """FlashInfer of this case: said, found, else the release's pin."""
        return self.case.flashinfer or self.case.packages.get("flashinfer-python", "") or self.release.flashinfer or ""

    @property
    def flashinfer(self) -> Flashinfer | None:
        """Facts of the FlashInfer of this case, or None where nothing is known of it."""
        if isinstance(self._flashinfer, bool):
            self._flashinfer = _load_flashinfer(self.flashinfer_version)
        return self._flashinfer

    def generator(self, name: str) -> Generator | None:
        known = self.flashinfer
        return known.generators.get(name) if known else None

    def builds(self, name: str) -> bool | None:
        """Has FlashInfer a kernel module `name` for the case's SM major; None: not known."""
        found = self.generator(name)
        if found is None or not found.certain:
            return None
        return found.majors is None or self.sm[0] in found.majors

    def library_proof(self, name: str) -> tuple[Evidence, ...]:
        known, found = self.flashinfer, self.generator(name)
        return (known.evidence(found.place, found.source),) if known and found else ()

    # conditions of the engine

    def holds(self, text: str, **known: Any) -> bool | None:
        """A condition of the engine for this case; None where not every part of it is known. `known`: local names."""
        locals_ = repr(sorted(known.items())) if known else ""
        key = (self._host, text, locals_, *map(self._shown.get, atoms.flags_of(self.release, text)))
        try:
            return _HELD[key]
        except KeyError:
            pass
        if len(_HELD) > 100_000:
            _HELD.clear()
        held = conditions.holds(text, lambda atom: known[atom] if atom in known else atoms.value(self, atom))
        _HELD[key] = held
        return held

    def test(self, name: str, **known: Any) -> bool | None:
        """The condition of a named site for this case; None also where the site is not there."""
        row = self.row(name)
        return None if row is None else self.holds(row["test"], **known)

    # answers

    def gate(
        self,
        flag: str,
        site: str,
        what: str,
        *,
        instead: tuple[dict[str, Value], ...] = (),
        stops: Outcome = Outcome.FAILS,
        expects: tuple[Expectation, ...] = (),
        gate: Gate = Gate.ENGINE,
    ) -> Part:
        """Active, `stops` or unknown, from one named site. `what` is the thing asked for, with its article."""
        passed = self.allows(site)
        proof = self.proof(site)
        if passed is None:
            return self.unsure(flag, f"{what}: the place in {self.release.version} that decides it", site)
        verb = "runs" if passed else {Outcome.FAILS: "stops the start"}.get(stops, "has no effect")
        reason = f"{self.release.version} tests the SM for {what}: on SM {self.sm_text} it {verb}."
        return Part(
            flag=flag,
            outcome=Outcome.ACTIVE if passed else stops,
            reason=reason,
            evidence=proof,
            steps=(Step(gate, passed, reason, proof[0] if proof else None),),
            expects=expects if passed else (),
            instead=() if passed else instead,
        )

    def unsure(self, flag: str, what: str, site: str = "") -> Part:
        """No evidence: never a guess."""
        row = _named(self.release).get(site) if site else None
        why = f" ({row['why']})" if row and row.get("why") else ""
        reason = f"{what} is not known{why}."
        return Part(
            flag=flag,
            outcome=Outcome.UNKNOWN,
            reason=reason,
            evidence=self.proof(site) if site else (),
            steps=(Step(Gate.ENGINE, None, reason),),
        )


@lru_cache(maxsize=64)
def _load_flashinfer(version: str) -> Flashinfer | None:
    try:
        return load_flashinfer(version) if version else None
    except UnknownReleaseError:
        return None


def answered_once(rule: Callable[[Context], Iterator[Part]]) -> Callable[[Context], Iterator[Part]]:
    """A rule that looks at nothing but `Context.key()`, asked once for all cases that it does not tell apart."""
    answers: dict[tuple[object, ...], tuple[Part, ...]] = {}

    def judge(c: Context) -> Iterator[Part]:
        key = c.key()
        if key not in answers:
            if len(answers) > 20_000:
                answers.clear()
            answers[key] = tuple(rule(c))
        return iter(answers[key])

    return judge

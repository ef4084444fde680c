"""`sglfleet knowledge`: what is known of engine releases, read from their wheels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from sglfleet.exits import Exit

if TYPE_CHECKING:
    from sglfleet.extract.release import Subject, Target

FORMATS = click.Choice(["text", "json"])


@click.group()
def command() -> None:
    """What is known of engine releases, read from their wheels."""


@command.command()
@click.argument("releases", nargs=-1, metavar="[RELEASE|FILE]...")
@click.option("--flashinfer", multiple=True, metavar="V", help="A FlashInfer release.")
@click.option("--kernel", multiple=True, metavar="PACKAGE==V", help="A kernel package; its wheel has up to 1.1 GB.")
@click.option("--tree", type=click.Path(path_type=Path), help="An unpacked SGLang, or a checkout of a fork.")
@click.option("--as", "name", help="Name that stands for the release of --tree or of a file.")
@click.option("--all-shipped", is_flag=True, help="Every release that is there already, again.")
@click.option("--with-kernels", is_flag=True, help="The kernel packages that the releases pin, too.")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), help="Folder of fetched wheels.")
def add(
    releases: tuple[str, ...],
    flashinfer: tuple[str, ...],
    kernel: tuple[str, ...],
    tree: Path | None,
    name: str | None,
    all_shipped: bool,
    with_kernels: bool,
    into: Path | None,
    cache: Path | None,
) -> None:
    """Extract SGLang releases, and the FlashInfer that each pins, from their wheels.

    A RELEASE is fetched with pip (CPython 3.11, Linux x86-64) and kept in a cache; a FILE is a wheel or an sdist.
    Nothing of them is executed.
    """
    from sglfleet.extract.release import home, shipped, target

    root = into or home(Path.cwd())
    queue: list[Target] = []
    with _errors() as problems:
        if tree is not None:
            if not name:
                raise click.UsageError("--tree: needs a name for what is in it: add `--as NAME`")
            queue.append(target("sglang", name, tree))
        for wanted in releases:
            found = problems.first(partial(_wanted, wanted, name))
            queue += [found] if found else []
        queue += [target("flashinfer-python", version) for version in flashinfer]
        queue += [target(*_pair(text)) for text in kernel]
        subjects: tuple[Subject, ...] = (
            ("sglang", "flashinfer", "kernels") if with_kernels else ("sglang", "flashinfer")
        )
        if all_shipped:
            queue += shipped(root, subjects)
        if not queue and not problems.messages:
            raise click.UsageError("nothing to add: give releases, files, `--tree`, or `--all-shipped`")
        _add_all(queue, root, cache, problems, with_kernels=with_kernels)


def _wanted(text: str, name: str | None) -> Target:
    from sglfleet.extract.release import from_file, target

    path = Path(text)
    if path.suffix == ".whl" or text.endswith(".tar.gz") or "/" in text:
        return from_file(path, name)
    return target("sglang", text)


def _pair(text: str) -> tuple[str, str]:
    package, separator, version = text.partition("==")
    if not separator:
        raise click.UsageError(f"--kernel {text}: no version: write PACKAGE==VERSION")
    return package, version


def _add_all(queue: list[Target], root: Path, cache: Path | None, problems: Problems, *, with_kernels: bool) -> None:
    from sglfleet.extract.fetch import cache_folder
    from sglfleet.extract.release import add as add_one
    from sglfleet.extract.release import needs

    with _bar() as progress:
        while queue:
            wanted = queue.pop(0)

            def one(wanted: Target = wanted) -> Path:
                path, changed = add_one(wanted, root, cache or cache_folder(), progress)
                click.echo(f"{wanted.package} {wanted.version}: {'written to' if changed else 'no change in'} {path}")
                for doubt in json.loads(path.read_bytes()).get("doubts", ()):
                    click.echo(f"{wanted.package} {wanted.version}: doubt: {doubt}", err=True)
                return path

            path = problems.first(one)
            if path and wanted.subject == "sglang":
                raw = json.loads(path.read_bytes())
                queue += [t for t in needs(raw, root, with_kernels=with_kernels) if t not in queue]


@command.command("list")
@click.option("--format", "form", type=FORMATS, default="text", show_default=True)
def list_(form: str) -> None:
    """The releases that are known, and what each pins."""
    from validators.knowledge import load_sglang, releases

    rows = []
    with _errors():
        for version in releases("sglang"):
            known = load_sglang(version)
            rows.append(
                {
                    "sglang": version,
                    "flags": len(known.flags),
                    "flashinfer": known.flashinfer,
                    "flashinfer_known": known.flashinfer in releases("flashinfer"),
                    "torch": known.pin("torch"),
                    "kernel": "==".join(known.kernel) if known.kernel else None,
                    "env": len(known.env),
                    "sites": len(known.sites.get("raises", ())) if isinstance(known.sites, dict) else len(known.sites),
                    "artifact": known.artifact.file,
                }
            )
    if form == "json":
        _json(
            {
                "schema_version": 1,
                "releases": rows,
                "flashinfer": releases("flashinfer"),
                "kernels": releases("kernels"),
            }
        )
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("SGLang", "flags", "FlashInfer", "torch", "kernel package", "variables", "SM sites", box=None)
    for row in rows:
        pinned = f"{row['flashinfer']}" + ("" if row["flashinfer_known"] else " (not known)")
        table.add_row(
            *map(str, (row["sglang"], row["flags"], pinned, row["torch"], row["kernel"], row["env"], row["sites"]))
        )
    Console().print(table)
    click.echo(f"FlashInfer: {', '.join(releases('flashinfer'))}")
    click.echo(f"Kernel packages: {', '.join(releases('kernels')) or 'none'}")


@command.command()
@click.argument("release")
@click.option("--flag", help="One flag, by any of its spellings.")
@click.option("--format", "form", type=FORMATS, default="text", show_default=True)
def show(release: str, flag: str | None, form: str) -> None:
    """What is known of one SGLang release."""
    from dataclasses import asdict

    from validators.knowledge import load_sglang
    from validators.knowledge.loader import path_of

    with _errors():
        known = load_sglang(release)
        if flag is None:
            path = path_of("sglang", release)
            if form == "json" and path:
                click.echo(path.read_text(encoding="utf-8"), nl=False)
                return
            _summary(known)
            return
        found = known.flag(flag)
        if found is None:
            resolved = known.resolve_spelling(flag if flag.startswith("-") else "--" + flag)
            said = f"ambiguous: {', '.join(resolved.candidates)}" if resolved.ambiguous else "no such flag"
            near = f"; near: {', '.join(resolved.near)}" if resolved.near else ""
            if resolved.flag is None:
                raise _bad(f"sglang {release}: --{flag.lstrip('-')}: {said}{near}: check the spelling")
            found = resolved.flag
        row = asdict(found)
        if form == "json":
            _json({"schema_version": 1, "sglang": release, "artifact": asdict(known.artifact), "flag": row})
            return
        for key, value in row.items():
            if value not in (None, "", (), False) or key in ("default",):
                click.echo(f"{key:12} {_said(value)}")


def _said(value: Any) -> str:
    """A fact for people: lists with commas, a place as file:line."""
    if isinstance(value, dict) and {"file", "line"} <= value.keys():
        return f"{value['file']}:{value['line']} {value.get('symbol', '')}".rstrip()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _summary(known: Any) -> None:
    click.echo(f"SGLang {known.version}, read from {known.artifact.file} (sha256 {known.artifact.sha256})")
    click.echo(
        f"Python {known.python}; FlashInfer {known.flashinfer}; torch {known.pin('torch')}; "
        f"kernels {' '.join(known.kernel) if known.kernel else 'none'}"
    )
    deprecated = [f.name for f in known.flags.values() if f.deprecated]
    unread = [f.name for f in known.flags.values() if f.default_source or f.choices_source]
    click.echo(f"{len(known.flags)} flags, {len(deprecated)} deprecated; {len(known.env)} environment variables")
    if deprecated:
        click.echo(f"deprecated: {', '.join(deprecated)}")
    click.echo(f"known only in part: {', '.join(unread) or 'none'}")
    for key, value in sorted(known.gates.items()):
        parts = list(value.items()) if isinstance(value, dict) else [(None, value)]
        if len(parts) > 8 and all(isinstance(rows, list) for _, rows in parts):  # texts by file: hundreds of files
            click.echo(f"{key}: {sum(len(rows) for _, rows in parts)} in {len(parts)} files")
            continue
        for part, rows in parts:
            if isinstance(rows, list):
                uncertain = sum(1 for r in rows if isinstance(r, dict) and "sms" in r and r["sms"] is None)
                said = f", {uncertain} whose SMs cannot be said" if uncertain else ""
                click.echo(f"{key}{f'.{part}' if part else ''}: {len(rows)}{said}")


@command.command()
@click.argument("old")
@click.argument("new")
@click.option("--format", "form", type=FORMATS, default="text", show_default=True)
def diff(old: str, new: str, form: str) -> None:
    """What changed from one SGLang release to another."""
    from dataclasses import asdict

    from sglfleet.extract.compare import compare
    from validators.knowledge import load_sglang

    with _errors():
        changes = compare(load_sglang(old), load_sglang(new))
    if form == "json":
        _json({"schema_version": 1, "old": old, "new": new, "changes": [asdict(c) for c in changes]})
        return
    for change in changes:
        click.echo(str(change))
    click.echo(f"{len(changes)} changes from {old} to {new}")


@command.command()
@click.argument("releases", nargs=-1)
@click.option("--all-shipped", is_flag=True, help="Every SGLang and FlashInfer release that is there.")
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), help="Folder of fetched wheels.")
def check(releases: tuple[str, ...], all_shipped: bool, cache: Path | None) -> None:
    """Extract again and compare with what is there, byte by byte. Exit code 1 where it differs."""
    from sglfleet.extract.document import dump
    from sglfleet.extract.fetch import cache_folder
    from sglfleet.extract.release import extract, shipped, target
    from sglfleet.extract.tree import ExtractError
    from validators.knowledge import load_sglang
    from validators.knowledge.loader import SHIPPED, path_of

    differ = 0
    with _errors() as problems, _bar() as progress:
        queue = [target("sglang", v) for v in releases] + (
            shipped(SHIPPED, ("sglang", "flashinfer")) if all_shipped else []
        )
        if not queue:
            raise click.UsageError("nothing to check: give releases or `--all-shipped`")
        for wanted in queue:

            def one(wanted: Target = wanted) -> bool:
                path = path_of(wanted.subject, wanted.stem)
                if path is None:
                    load_sglang(wanted.version)  # raises: says how to add it
                    raise ExtractError(f"{wanted.stem}: no knowledge of it")
                text = dump(extract(wanted, cache or cache_folder(), progress))
                same = text == path.read_text(encoding="utf-8")
                click.echo(f"{wanted.package} {wanted.version}: {'no difference' if same else 'differs'}")
                for line in () if same else _lines(path.read_text(encoding="utf-8"), text):
                    click.echo(f"  {line}")
                return same

            differ += problems.first(one) is False
    if differ:
        raise SystemExit(Exit.REFUSED)


def _lines(old: str, new: str) -> Iterator[str]:
    """The first lines that differ."""
    import difflib
    from itertools import islice

    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "committed", "extracted", n=0, lineterm="")
    yield from (line[:200] for line in islice(lines, 20))


@command.command()
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), help="Folder of fetched wheels.")
def fresh(into: Path | None, cache: Path | None) -> None:
    """Find newer releases on the package index, extract them, and print what changed, for review."""
    from packaging.version import Version

    from sglfleet.extract.compare import compare
    from sglfleet.extract.fetch import available
    from sglfleet.extract.release import home, target
    from validators.knowledge import load_sglang, releases

    root = into or home(Path.cwd())
    with _errors() as problems:
        queue: list[Target] = []
        for package, subject in (("sglang", "sglang"), ("flashinfer-python", "flashinfer")):
            newest = max(Version(v) for v in releases(subject) if _is_number(v))  # type: ignore[arg-type]
            newer = sorted(Version(v) for v in available(package) if Version(v) > newest)
            click.echo(f"{package}: {', '.join(map(str, newer)) or f'nothing newer than {newest}'}")
            queue += [target(package, str(v)) for v in newer]
        before = [v for v in releases("sglang") if _is_number(v)][-1]
        _add_all(list(queue), root, cache, problems, with_kernels=False)
        for wanted in queue:
            if wanted.subject == "sglang" and wanted.path(root).is_file():
                click.echo(f"\n{before} → {wanted.version}")
                for change in compare(load_sglang(before), load_sglang(wanted.version)):
                    click.echo(f"  {change}")
                before = wanted.version


def _is_number(release: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return bool(Version(release))
    except InvalidVersion:
        return False


class Problems:
    """Errors of several releases, all shown at the end."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def first(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, or None with its error kept."""
        from sglfleet.extract.tree import ExtractError
        from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError

        try:
            return work()
        except (ExtractError, UnknownReleaseError, BrokenKnowledgeError) as error:
            self.messages.append(str(error))
            return None


@contextmanager
def _errors() -> Iterator[Problems]:
    """One clear line an error, exit code 2."""
    from sglfleet.extract.tree import ExtractError
    from validators.knowledge import BrokenKnowledgeError, UnknownReleaseError

    problems = Problems()
    try:
        yield problems
    except (ExtractError, UnknownReleaseError, BrokenKnowledgeError) as error:
        problems.messages.append(str(error.args[0] if error.args else error))
    if problems.messages:
        raise _bad("\n".join(sorted(problems.messages)))


def _bad(message: str) -> click.ClickException:
    return _BadInput(message)


class _BadInput(click.ClickException):
    """Ends a command with its messages alone."""

    exit_code = int(Exit.BAD_INPUT)

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, err=True, file=file)


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """A progress bar on standard error where somebody looks at it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def update(name: str, done: int, of: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=of or None)
            progress.update(tasks[name], completed=done, total=of or None)

        yield update


def _json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))

"""`sglfleet verify`: prove on the running servers that every flag does what it says."""

from __future__ import annotations

import sys

import click

FORMATS = ("text", "json", "junit", "html")


@click.command(
    "verify",
    epilog="Exit codes: 0 fine, 1 contradicted, 2 bad input, 3 with --strict: not proven, 4 a host could not be asked.",
)
@click.argument("inventory")
@click.argument("service", required=False)
@click.option("--limit", metavar="HOST", multiple=True, help="Only these hosts; may be given more than once.")
@click.option(
    "--profile",
    type=click.Choice(("first", "every", "none")),
    default=None,
    help="Which hosts of a service are profiled; by default the first where its file says `verify: {profile: true}`."
    " The engine's profiler now and then ends a server.",
)
@click.option(
    "--format", "form", type=click.Choice(("text", "json", "junit", "html")), default="text", show_default=True
)
@click.option("--evidence", is_flag=True, help="Show what was seen also for what is proven.")
@click.option("--strict", is_flag=True, help="End with 3 when a flag is not proven.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write there instead of standard output.")
def command(
    inventory: str,
    service: str | None,
    limit: tuple[str, ...],
    profile: str | None,
    form: str,
    evidence: bool,
    strict: bool,
    output: str | None,
) -> None:
    """Prove what SERVICE (default: every service) does on the hosts of INVENTORY.

    What runs is read from the process, its journal, its /server_info and a short profile, and held against the verdicts
    of the release that runs. The run is kept as reports/*.json and *.html.
    """
    from sglfleet.guard import check_validators
    from sglfleet.outfile import end
    from sglfleet.verify.showing import REPORTS, keep, show

    check_validators()
    from sglfleet.verify.running import over_inventory
    from validators.source import InputError

    try:
        document = over_inventory(inventory, service, limit, profile=profile or "")
    except InputError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    unkept: OSError | None = None
    try:
        keep(document)
    except OSError as error:  # what was found is shown all the same
        unkept = error
    show(document, form, evidence=evidence, strict=strict, output=output)
    if unkept is not None:
        end(REPORTS, unkept)
    sys.exit(int(document.exit(strict)))

"""The front of rolling restarts: what deploy.py, `sglfleet rollback` and `sglfleet resume` call.

Inside pyinfra one operation drives everything: the first host that gets to it calls `roll`, which takes all services
over all hosts in the order of the inventory; the others wait for their own result. pyinfra's own `--serial`, `_serial`
and `--no-wait` are no rolling restart (they go on after a failed host, or hide the failure): see `mode_problem`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sglfleet.exits import Exit
from sglfleet.roll.plan import Node, Policy, lines, plan
from sglfleet.roll.report import Report
from sglfleet.roll.target import Target

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from sglfleet.planning import Job
    from sglfleet.roll.remote import Remote
    from sglfleet.roll.state import Halt
    from sglfleet.router import Router
    from validators.service import Rollout

Say = Callable[[str], None]
STOP_DRAINS = 60.0  # s; without a router requests never end, so after this the stop drains those that run


def policy_of(rollout: Rollout, order: Sequence[str], *, routed: bool) -> Policy:
    """`rollout:` of a service file as a policy; `canary: 2` means the first two hosts of `order`."""
    canary = rollout.canary
    names = tuple(order[:canary]) if isinstance(canary, int) else tuple(canary or ())
    return Policy(
        canary=names,
        max_unavailable=rollout.max_unavailable,
        soak=rollout.soak,
        on_failure=rollout.on_failure,
        drain=rollout.drain_timeout if routed else min(STOP_DRAINS, rollout.drain_timeout),
        gate_deadline=max(300.0, rollout.drain_timeout),
    )


def address_of(host: Host) -> str:
    """Where a router reaches the host's servers."""
    data = host.data
    return str(data.get("address") or data.get("service_address") or data.get("ssh_hostname") or host.name)


def target_of(job: Job, host: Host) -> Target:
    """A job's target. The API key stays where it is, on the host."""
    service, release = job.service, job.release
    role = str(service.args.get("disaggregation-mode") or "")
    return Target(
        host=job.host,
        service=release.service,
        release=release.id,
        port=release.port,
        url=release.url,
        public_url=f"http://{address_of(host)}:{release.port}",
        start_timeout=float(release.start_timeout),
        stop_timeout=float(release.stop_timeout),
        key_file=job.key_file,
        rank=job.placement.rank,
        group=service.nodes.group if service.nodes else "",
        role=role if role in ("prefill", "decode") else "",
        rack=str(host.data.get("rack") or ""),
        kept=service.rollout.keep,
        args={name: value for name, value in service.args.items() if isinstance(value, str | int | float | bool)},
        verdicts=tuple(f"{v.flag}: {v.outcome.value}, {v.decision.value}" for v in job.judgement.verdicts),
    )


def preview(service: str, nodes: Sequence[Node], rollout: Rollout) -> list[str]:
    """The plan as `--dry` shows it, from facts alone."""
    policy = policy_of(rollout, [node.host for node in nodes], routed=False)
    return lines(service, plan(nodes, policy), {node.host: node.target for node in nodes})


def mode_problem(argv: Sequence[str]) -> str:
    """Why this pyinfra command line cannot roll; empty where it can."""
    for flag, why in (
        ("--serial", "goes on with the next host after a failed one"),
        ("--no-wait", "hides failed hosts behind exit code 0"),
    ):
        if flag in argv:
            return f"pyinfra {flag}: it {why}: run without it, the roll keeps its own order and stops by itself"
    return ""


def roll(
    state: State,
    jobs: Sequence[Job],
    *,
    absent: Mapping[str, Mapping[str, str]] | None = None,
    beyond: Mapping[str, Sequence[str]] | None = None,
    say: Say | None = None,
    prove: Callable[[str, str], str] | None = None,
    measure: Callable[[str, str], Halt | None] | None = None,
) -> list[Report]:
    """Roll every service of `jobs`, one after another; hosts that run the right release already count and are kept.

    `absent`: service -> host -> why nothing can be done there (unreachable, staging failed). `beyond`: service -> hosts
    outside of `--limit`, which are locked and counted, not changed. `prove`: (host, service) -> why the started
    release must not stay, "" where it may: the last step before it is accepted. `measure`: the same after it, out of
    the router: why no further host is to change. Hosts are taken in the order of the inventory, whatever the order of
    `jobs`. Raises RuntimeError, before anything is touched, where pyinfra was called in a way that cannot roll.
    """
    from sglfleet.fleet import keep_alive
    from sglfleet.roll.remote import Remote
    from sglfleet.roll.report import Report
    from sglfleet.roll.service import roll_service
    from sglfleet.roll.state import RouterError

    if problem := mode_problem(sys.argv):
        raise RuntimeError(problem)
    tell = say or _tell
    reports: list[Report] = []
    hosts = {str(host.name): host for host in state.inventory}
    for service in dict.fromkeys(job.release.service for job in jobs):
        mine = {job.host: job for job in jobs if job.release.service == service}
        out = dict((absent or {}).get(service, {}))
        targets: dict[str, Target] = {}
        remotes: dict[str, Remote] = {}
        for name, host in hosts.items():
            if name in mine:
                targets[name] = target_of(mine[name], host)
            elif name in out:
                targets[name] = Target(name, service, "", 0)
            if name in mine and name not in out:
                keep_alive(host)
                remotes[name] = Remote(host, service)
        rollout = next(iter(mine.values())).service.rollout
        try:
            router = router_of(state.inventory, service, tell, targets)
        except (RouterError, ValueError) as error:
            reports.append(Report(service, refused=tuple(str(error).splitlines())))
        else:
            policy = policy_of(rollout, list(targets), routed=router is not None)
            outside = {
                name: Remote(hosts[name], service, lost=not hosts[name].connected)
                for name in (beyond or {}).get(service, ())
            }
            reports.append(
                roll_service(
                    service,
                    targets,
                    remotes,
                    policy,
                    out=out,
                    router=router,
                    say=tell,
                    prove=prove,
                    beyond=outside,
                    measure=measure,
                )
            )
        for line in reports[-1].lines():
            tell(line)
    return reports


def exit_of(reports: Sequence[Report]) -> Exit:
    """The code of several reports."""
    return Exit.worst(report.exit for report in reports)


def router_of(inventory: Any, service: str, say: Say, targets: Mapping[str, Target]) -> Router | None:
    """The router of a service, deployed and answering; None where the inventory has none.

    Raises RouterError, and ValueError where the inventory's data are wrong.
    """
    from sglfleet import router as routers
    from sglfleet.roll.state import RouterError

    router = router_there(inventory, service, say)
    if router is None:
        return None
    fronts = [target for target in targets.values() if target.rank == 0 and target.port]
    nodes = dict(Counter(target.role for target in fronts))
    if "" in nodes and len(nodes) > 1:
        counts = ", ".join(f"{count} {role or 'whole'}" for role, count in sorted(nodes.items()))
        raise RouterError(
            f"{service}: router on {router.remote.name}: it fronts prefill and decode servers, or whole ones alone, "
            f"not {counts} together: set disaggregation-mode for all hosts, or for none"
        )
    router.nodes = nodes
    if routers.deploy(router.remote, router.spec, pair="prefill" in nodes):
        say(f"router on {router.remote.name}: unit written, restarted")
    return router


def router_there(inventory: Any, service: str, say: Say) -> Router | None:
    """The router as it is, nothing deployed; None where the inventory has none. Raises as `router_of`."""
    from sglfleet import router as routers
    from sglfleet.roll.remote import Remote
    from sglfleet.roll.state import RouterError

    for host in inventory:
        data = host.data.get("router")
        if not data or data.get("service") != service:
            continue
        spec = routers.parse(data, host.name)
        if not host.connected:
            raise RouterError(f"router on {host.name}: the host cannot be reached: nothing of {service} is touched")
        return routers.Router(Remote(host, service), spec, say)
    return None


def _tell(text: str) -> None:
    import click

    click.echo(text, err=True)

"""Drives one roll in a process of its own, so that a test can kill it: JSON on standard input, a report at the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from types import SimpleNamespace


def main() -> None:
    from sglfleet.fleet import connect, patch

    patch()
    from sglfleet import router as routers
    from sglfleet.roll.plan import Policy
    from sglfleet.roll.remote import Remote
    from sglfleet.roll.service import roll_service
    from sglfleet.roll.state import Halt
    from sglfleet.roll.target import Target

    spec = json.load(sys.stdin)
    hosts = {name: SimpleNamespace(name=name, data=data) for name, data in spec["hosts"]}
    policy = Policy(**{k: tuple(v) if isinstance(v, list) else v for k, v in spec["policy"].items()})
    targets = {name: Target(host=name, service=spec["service"], **fields) for name, fields in spec["targets"].items()}
    with connect(SimpleNamespace(hosts=hosts)) as fleet:  # type: ignore[arg-type]
        out = {name: reason for name, reason in fleet.failed.items() if name in targets}
        router = None
        if "router" in spec:
            made = routers.parse(spec["router"]["data"], "test")
            remote = Remote(fleet.hosts[spec["router"]["host"]], spec["service"])
            roles = Counter(target.role for target in targets.values())
            routers.deploy(remote, made, pair="prefill" in roles)
            router = routers.Router(remote, made, nodes=roles)
        remotes = {name: Remote(host, spec["service"]) for name, host in fleet.hosts.items() if name in targets}
        slow = {host: Halt(reason, back) for host, (reason, back) in spec.get("slow", {}).items()}
        measure = (lambda host, service: slow.get(host)) if slow else None
        beyond = {  # as --limit leaves them: in the inventory, and not connected
            name: Remote(fleet.state.inventory.get_host(name), spec["service"], lost=True) for name in spec["beyond"]
        }
        report = roll_service(
            spec["service"],
            targets,
            remotes,
            policy,
            out=out,
            router=router,
            measure=measure,
            beyond=beyond,
        )
        for line in report.lines():
            print(line)
        print("REPORT", json.dumps(report.as_json()))


if __name__ == "__main__":
    main()

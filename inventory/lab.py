"""The lab of this machine: real hosts that play GPUs. `make demo` and the tests deploy to them.

LAB_NAME says which lab, LAB_USER=deploy logs in without root, LAB_JUMP=1 reaches all but h1 through h1.
"""

import os
import sys

from lab.fleet import Lab
from lab.settings import LabError


def connection(lab, host):
    """How pyinfra logs in to a lab host."""
    jumps = os.environ.get("LAB_JUMP") and host.name != "h1"
    return {
        "ssh_hostname": f"{host.name}-via-h1" if jumps else host.ip,
        "ssh_user": os.environ.get("LAB_USER", "root"),
        "ssh_key": lab.key,
        "ssh_config_file": lab.ssh_config,
        "ssh_known_hosts_file": lab.known_hosts,
        "ssh_strict_host_key_checking": "yes",
        "profile": lab.profiles()[host.name],
        "address": host.ip,
    }


def hosts():
    """All hosts of the lab that is up, or the end with one clear line."""
    try:
        lab = Lab()
        found = [(host.name, connection(lab, host)) for host in lab.hosts()]
    except LabError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if not found:
        print(f"inventory/lab.py: lab {lab.name} is not up: sglfleet lab up 3", file=sys.stderr)
        sys.exit(2)
    return found


lab_hosts = hosts()

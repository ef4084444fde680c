"""The files of a new project: inventory, group data, one commented service file, a deploy.py that calls ours. Pure."""

from __future__ import annotations

DEPLOY = '''"""The main job: `pyinfra inventory/prod.py deploy.py`. Plan with `--dry`, one host with `--limit`."""

from sglfleet import stages

fleet = stages.plan()  # read intent, collect facts, judge, render: of all hosts, before any of them is changed
stages.stage(fleet)  # engine, release, secrets on the hosts; nothing restarts
stages.roll(fleet)  # canary, then batches: drain, switch, start, health gate
stages.remove_leftovers(fleet)  # only on request
'''

CONFIG = '''"""pyinfra's settings for this project."""

from sglfleet.guard import check_validators

REQUIRE_PYINFRA_VERSION = ">=3.10,<4"
CONNECT_TIMEOUT = 10  # seconds

check_validators()  # PyPI has an unrelated package of that name
'''

INVENTORY = '''"""Who: hosts by group. What they run is group data: group_data/GROUP.py."""

gpu_hosts = [
    # a name that ssh knows, with data where a host differs
    ("gpu-1.example.com", {{"ssh_user": "root", "rack": "a"}}),
    ("gpu-2.example.com", {{"ssh_user": "root", "rack": "b"}}),
]
'''

GROUP = '''"""What the hosts of the group `gpu_hosts` are and run."""

gpu = "{gpu}"  # until `sglfleet facts` has recorded what they really are
services = ["{service}"]

# Where a group differs from the service file, key by key:
# service_overrides = {{"{service}": {{"args": {{"mem-fraction-static": 0.85}}}}}}
'''

SERVICE = """# yaml-language-server: $schema=../../schemas/service-{release}.json
service: {service}               # the unit is sglang-{service}.service
engine:
  sglang: {release}               # exact release; FlashInfer, torch and kernels follow its own pins
  venv: managed                 # installed with uv, one per engine; or the path of one that is there
model: /models/{service}         # a folder on the hosts
gpus: [{gpus}]
args:                           # SGLang's own flags, without the dashes
  port: 30000
  tp-size: {tp}
  # enable-metrics: true
# env: {{NCCL_DEBUG: WARN}}
# secrets: {{api-key: {{env: SGLANG_API_KEY}}}}   # read on the controller, never in a unit, argv, log or diff
on_unsupported: auto            # auto | downgrade | refuse | warn
rollout:
  max_unavailable: 1            # nodes out at once: a number or a percentage
  soak: 30s                     # a new node stays healthy so long before the next one
  start_timeout: 30m            # from start until a token is generated
  drain_timeout: 10m            # the longest request a stop waits for
  on_failure: rollback          # or halt
# verify:
#   benchmark: {{input_len: 1000, output_len: 1000, concurrency: [1, 16, 64], repeats: 5}}
"""

IGNORE = """/reports/
/results/
/pyinfra-debug.log
__pycache__/
"""


def files(service: str, gpu: str, count: int, release: str) -> dict[str, str]:
    """Path -> text of everything in a new project but the editor's schema."""
    words = {
        "service": service,
        "gpu": gpu,
        "release": release,
        "gpus": ", ".join(map(str, range(count))),
        "tp": count,
    }
    return {
        "deploy.py": DEPLOY,
        "config.py": CONFIG,
        "inventory/prod.py": INVENTORY.format(**words),
        "group_data/gpu_hosts.py": GROUP.format(**words),
        f"group_data/services/{service}.yaml": SERVICE.format(**words),
        ".gitignore": IGNORE,
    }

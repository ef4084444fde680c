"""The main job: `pyinfra inventory/prod.py deploy.py`. pyinfra runs this file once per host.

Plan with `--dry`, see units change with `--diff`, one host with `--limit`.
"""

from sglfleet import stages

fleet = stages.plan()  # read intent, collect facts, judge, render: of all hosts, before any of them is changed

stages.stage(fleet)  # engine, release, secrets on the host; nothing restarts
stages.roll(fleet)  # canary, then batches: drain, switch, start, health gate
stages.remove_leftovers(fleet)  # only on request

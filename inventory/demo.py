"""A simulated fleet: hosts that exist in this file only and answer with made-up facts. `make demo` shows it where a
machine cannot hold the lab; `pyinfra --dry --diff inventory/demo.py deploy.py` shows verdicts, plan and units."""

from sglfleet import facts, simulate

HARDWARE = {
    "demo-h100": "h100 x8",
    "demo-b200": "b200 x8",
    "demo-rtx-1": "rtx-pro-6000 x4",
    "demo-rtx-2": "rtx-pro-6000 x4",
}

MODEL = "/models/Qwen3.5-122B-A10B"  # no list: pyinfra takes every list and tuple of this file for a group

demo_hosts = [
    (
        f"@fake/{name}",
        {
            "fake_responses": {facts.MARKER: simulate.answer(gpu, models=(MODEL,))},
            "fake_delay": 0,
            "fake_delay_jitter": 0,
        },
    )
    for name, gpu in HARDWARE.items()
]

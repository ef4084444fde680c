"""All lab hosts. They have no GPU: what the CPU needs is laid over the judged command line and shown as a stand-in."""

import os

lab = True
services = ["tiny"]
ask_engine = os.environ.get("LAB_ASK_ENGINE") != "no"  # importing it takes a small machine half a minute
launch_override = {
    "*": {
        "args": {
            "device": "cpu",
            "attention-backend": "torch_native",
            "max-total-tokens": 16384,  # without it the KV pool takes most of the machine's memory
            "max-running-requests": 16,
            "sleep-on-idle": True,  # an idle scheduler otherwise keeps one core busy
        },
        "pins": {"torch": "any", "flashinfer": "any", "kernel": "any"},  # the CPU engine has no CUDA libraries
        "env": {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    },
}
if "SGLFLEET_LAB_CACHE" in os.environ:
    _cache = os.environ["SGLFLEET_LAB_CACHE"]
    service_overrides = {"tiny": {"engine": {"venv": f"{_cache}/engine-0.5.23"}, "model": f"{_cache}/tiny-gpt2"}}

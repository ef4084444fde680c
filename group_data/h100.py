"""Hosts with eight H100 SXM (SM 9.0) on NVSwitch."""

gpu = "h100 x8"
services = ["qwen35-122b", "llama33-70b"]
service_overrides = {
    "qwen35-122b": {"args": {"mem-fraction-static": 0.85}},
}

"""Hosts with four RTX PRO 6000 Blackwell (SM 12.0) on PCIe."""

gpu = "rtx-pro-6000 x4"  # until facts are recorded with `sglfleet facts`
services = ["qwen35-122b"]

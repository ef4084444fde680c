"""Hosts of the simulated fleet."""

services = ["qwen35-122b"]

#!/usr/bin/python3 -IS
"""Stand-in for NVIDIA's nvidia-smi in a lab host (first form)."""

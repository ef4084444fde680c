#!/bin/sh
# Stand-in for NVIDIA's CUDA compiler in a lab host: it tells a version and compiles nothing.
case "$*" in
  --version | -V)
    echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Copyright (c) 2005-2025 NVIDIA Corporation"
    echo "Cuda compilation tools, release @VERSION@, V@VERSION@.0" ;;
  *) echo "nvcc: a stand-in of the lab: it compiles nothing" >&2; exit 1 ;;
esac

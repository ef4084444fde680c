#!/usr/bin/env bash
# run.sh one|two SECONDS : the whole chain on a machine with one or two NVIDIA cards and nothing else installed but torch.
# run.sh - COMMAND…      : COMMAND with the engine set up (effect.py and gate.py beside this file are meant for it).
# Wants the engine as .sglb/bundle.tar.xz, kernel caches as .sgl/jit/jit_*.tar.xz (or .tgz) and the models as .sgl/model/ (both folders
# ignored by git). Evidence goes to $OUT: evidence.json.gz, logs.tgz, bench-*.jsonl, chain.log.
set -u
which=${1:?one, two or -}; seconds=${2:-540}; out=${OUT:?where the evidence goes}
cd "$(dirname "$0")/../.." || exit 2
begin=$(date +%s)
# NVLink multicast stays off, whatever a flag asks: it can put a shared host's cards out of service
export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1
[ -d /tmp/site ] || python3 - <<'PY'
import os, tarfile
os.makedirs("/tmp/site", exist_ok=True)
tarfile.open(".sglb/bundle.tar.xz", "r:xz").extractall("/tmp/site", filter="fully_trusted")
PY
[ -d /tmp/model ] || cp -r .sgl/model /tmp/model
[ -e /tmp/site/compiled ] || { python3 -m compileall -q -j 16 /tmp/site >/dev/null 2>&1; touch /tmp/site/compiled; }
mkdir -p ~/.cache ~/.triton /tmp/prom
[ -e /tmp/site/caches ] || python3 - <<'PY'
import os, pathlib, tarfile
places = {"tvm": "~/.cache", "fi": "~/.cache", "triton": "~/.triton", "ind": "/tmp"}
for packed in sorted(pathlib.Path(".sgl/jit").glob("jit_*.t*")):
    place = places[packed.name.split("_")[1].split(".")[0]]
    tarfile.open(packed).extractall(os.path.expanduser(place), filter="fully_trusted")
pathlib.Path("/tmp/site/caches").touch()
PY
export PYTHONPATH=/tmp/site:$PWD HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONUNBUFFERED=1 PROMETHEUS_MULTIPROC_DIR=
unset PROMETHEUS_MULTIPROC_DIR
CUDA_HOME=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")}; export CUDA_HOME
spent=$(( $(date +%s) - begin ))
echo "set up in $spent s"
[ "$which" = - ] && { shift; exec "$@"; }
python3 tests/gpu/chain.py "$which" "$out" $(( seconds - spent )) 2>&1 | tee "$out/chain.log"
ls -la "$out"

"""Interleaved benchmark runs by the engine's own client, in one process: its imports take 20 s, a run takes 10.

`bench.py OUT.jsonl MODEL PROMPTS CONCURRENCY LENGTH DEADLINE ARM=PORT…`: blocks of one run per arm, the order turned
round in every other block, until the deadline (unix seconds). One row per run, with `arm` and `block` added.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from pathlib import Path


def main() -> None:
    out, model, prompts, concurrency, length, deadline, *arms = sys.argv[1:]
    import sglang.benchmark.serving as serving

    pairs = [arm.split("=") for arm in arms]
    longest = 0.0
    for block in range(8):
        for arm, port in pairs if block % 2 == 0 else reversed(pairs):
            if time.time() + longest + 3 > float(deadline):
                return
            begin = time.time()
            row = Path(out).with_suffix(".row")
            row.unlink(missing_ok=True)
            sys.argv = [
                "serving", "--backend", "sglang", "--host", "127.0.0.1", "--port", port,
                "--model", model, "--tokenizer", model,
                "--dataset-name", "random-ids", "--random-input-len", length, "--random-output-len", length,
                "--random-range-ratio", "1.0", "--num-prompts", prompts, "--max-concurrency", concurrency,
                "--seed", str(100 + block), "--disable-tqdm", "--warmup-requests", "1", "--output-file", str(row),
            ]  # fmt: skip
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    serving.cli_main()
                result = json.loads(row.read_text().splitlines()[-1])
            except (Exception, SystemExit):
                traceback.print_exc()
                continue
            result = {k: v for k, v in result.items() if not isinstance(v, list)}
            with Path(out).open("a") as rows:
                rows.write(json.dumps({"arm": arm, "block": block, "started": begin, **result}) + "\n")
            longest = max(longest, time.time() - begin)
            print(
                arm,
                block,
                f"{result.get('output_throughput', 0):.0f} tokens/s, {time.time() - begin:.1f} s",
                flush=True,
            )


main()

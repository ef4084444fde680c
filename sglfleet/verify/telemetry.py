"""What the GPUs did during a run: `nvidia-smi` sampled beside the benchmark, reduced to a few honest numbers."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import datetime
from statistics import median

from sglfleet.verify.runs import Telemetry

# Asked in this order with `--format=csv,noheader,nounits -lms 500`. The reasons' field was renamed in driver 535:
# clocks_throttle_reasons.active is still understood by every driver since.
FIELDS = (
    "timestamp",
    "index",
    "power.draw",
    "power.limit",
    "clocks.current.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "memory.used",
    "utilization.gpu",
    "clocks_throttle_reasons.active",
)
# Bits of the active reasons, from NVML's nvmlClocksEventReasons*.
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
POINTS = 120  # of the series that is kept for the picture


def summarise(text: str, gpus: tuple[int, ...] = ()) -> Telemetry | None:
    """Telemetry of the named GPUs (empty: all), or None where no line could be read.

    `text` is what nvidia-smi printed, one line a GPU and sample; lines that are cut off are passed over, since the
    sampler is stopped in the middle of one.
    """
    samples: dict[int, list[tuple[datetime, dict[str, str]]]] = defaultdict(list)
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) != len(FIELDS):
            continue
        values = dict(zip(FIELDS, row, strict=True))
        try:
            at, index = datetime.strptime(values["timestamp"], "%Y/%m/%d %H:%M:%S.%f"), int(values["index"])
        except ValueError:
            continue
        if not gpus or index in gpus:
            samples[index].append((at, values))
    if not samples:
        return None
    length = min(len(rows) for rows in samples.values())
    columns = [rows[:length] for rows in samples.values()]

    def column(field: str) -> list[list[float]]:
        return [[number for _, v in rows if (number := _number(v[field])) is not None] for rows in columns]

    first = columns[0][0][0]
    power = [sum(_number(rows[i][1]["power.draw"]) or 0.0 for rows in columns) for i in range(length)]
    clock = [min(_number(rows[i][1]["clocks.current.sm"]) or 0.0 for rows in columns) for i in range(length)]
    seconds = [(rows[0] - first).total_seconds() for rows in columns[0]]
    step = max(1, length // POINTS)
    limits, most = column("power.limit"), column("clocks.max.sm")
    return Telemetry(
        gpus=len(columns),
        seconds=seconds[-1],
        power_w=median(power),
        power_limit_w=sum(c[0] for c in limits) if all(limits) else None,
        sm_mhz=median(clock),
        sm_mhz_most=min(c[0] for c in most) if all(most) else None,
        temperature_c=max((max(c) for c in column("temperature.gpu") if c), default=0.0),
        memory_mib=max((max(c) for c in column("memory.used") if c), default=0.0),
        utilisation=min((median(c) for c in column("utilization.gpu") if c), default=0.0),
        throttled=_reasons([v["clocks_throttle_reasons.active"] for rows in columns for _, v in rows]),
        series=tuple((seconds[i], power[i], clock[i]) for i in range(0, length, step)),
    )


def _number(text: str) -> float | None:
    """A field's value, or None for «[N/A]», «[Not Supported]» and the like."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


def _reasons(masks: list[str]) -> tuple[str, ...]:
    """Reasons that were active in at least a tenth of the samples: a single spike is no throttled run."""
    counts: dict[str, int] = defaultdict(int)
    for mask in masks:
        try:
            bits = int(mask, 16)
        except ValueError:
            continue
        for bit, name in REASONS.items():
            counts[name] += bool(bits & bit)
    return tuple(sorted(name for name, count in counts.items() if count and count * 10 >= len(masks)))

"""Writes docs/gpu-evidence.md from recordings of the kit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Recording = Mapping[str, Any]
HEAD = """\
# What has been seen on GPUs

`scripts/gpu_kit.sh run OUT` tries in some ten minutes what only a GPU can show, through the agent's own parts: NVML and
MPS, limits that are read back, settings, four loads alone and in pairs, a hand-over under requests, the profiler, a
real model. It needs Linux, Python 3.11 or newer with NumPy and SciPy, NVIDIA's driver with `nvidia-cuda-mps-control`,
root for clocks and power limits, and a first GPU on which nothing else runs.

`scripts/gpu_kit.sh keep OUT/recording.json` keeps the recording as a fixture in `tests/agents/devices/recorded`, and
writes this page. A test makes a stand-in for NVML from each fixture, which must look to the agent like the GPU itself.

On a GPU that is somebody else's, `--leave-settings` sets no clock, power limit or compute mode. `--only` names the
steps to try. For a machine without network run `scripts/gpu_kit.sh wheels` first, and take the folder `.gpu-kit` along.

Without a GPU the kit runs on stand-ins for NVIDIA's library and program. That shows that the kit works, and nothing
about GPUs.
"""
MADE_UP = ("alone", "pairs", "clocks", "profiler")  # by stand-ins
LOADS = """\
The four loads are limited by arithmetic, by memory bandwidth, by the cache, and by the time between launches
(`gpuwright-serve --kernel`). Times are means of single batches in milliseconds, by the server's clock.
"""


def render(recordings: Sequence[Recording]) -> str:
    lines = [HEAD]
    if all(recording["isStandIn"] for recording in recordings):
        lines.append("**No GPU has been tried yet: everything below was recorded on stand-ins.**\n")
    for recording in recordings:
        lines += _section(recording)
    return "\n".join(lines)


def _section(recording: Recording) -> Iterator[str]:
    steps = recording["steps"]
    device = steps["device"]
    kind = ", stand-in" if recording["isStandIn"] else ""
    yield f"## {device['gpu']['name']}{kind}\n"
    yield f"Recorded {recording['at']} in {recording['seconds']} s; driver {device['driver']};"
    yield f"{recording['machine']}.\n"
    failed = [(name, step["failed"]) for name, step in steps.items() if "failed" in step]
    if failed:
        yield "### What failed\n"
        yield from _table(("step", "why"), failed)
    skipped = [f"{name} ({step['skipped']})" for name, step in steps.items() if "skipped" in step]
    if skipped:
        yield f"Left out: {', '.join(skipped)}.\n"
    parts = {
        "settings": _settings,
        "shares": _shares,
        "memory": _memory,
        "termination": _termination,
        "handover": _handover,
        "alone": _alone,
        "pairs": _pairs,
        "clocks": _clocks,
        "realModel": _real_model,
        "profiler": _profiler,
    }
    if recording["isStandIn"]:
        yield f"The times of loads are made up there, and are left out: {', '.join(MADE_UP)}.\n"
    for name, part in parts.items():
        step = steps.get(name, {"failed": ""})
        if not {"failed", "skipped"} & step.keys() and not (recording["isStandIn"] and name in MADE_UP):
            yield from part(step)


def _settings(step: Recording) -> Iterator[str]:
    yield "### Settings\n"
    rows = [
        (name, setting.get("requested"), setting.get("applied"), setting.get("refused", ""))
        for name, setting in step.items()
    ]
    yield from _table(("setting", "requested", "read back", "refused"), rows)


def _shares(step: Recording) -> Iterator[str]:
    yield "### Limits of SMs\n"
    yield f"Multiprocessors that a copy sees, of {step['of']}.\n"
    rows = [(row["sm_percent"], row["sm_count"], "yes" if row["is_client"] else "no") for row in step["rows"]]
    yield from _table(("share in %", "sees", "client of MPS"), rows)


def _memory(step: Recording) -> Iterator[str]:
    yield "### Limit of memory\n"
    outcome = "was refused" if step["is_refused"] else "**was not refused**"
    yield f"A copy with a limit of {step['limit_gib']} GiB that claimed {step['wanted_gib']} GiB {outcome}. It said:\n"
    yield from (f"    {line}" for line in step["said"][-3:])
    yield ""


def _termination(step: Recording) -> Iterator[str]:
    yield "### One of two clients is terminated\n"
    confirmed = "Confirmed" if step["confirmed"] else "**Not confirmed**"
    yield f"{confirmed} by the daemon; the other one answered {step['batches_of_the_other']} more batches."
    yield f"MPS is {step['mps']}.\n"


def _handover(step: Recording) -> Iterator[str]:
    yield "### A hand-over under requests\n"
    first, second = step["sm_percents"]
    yield (
        f"From {first:g} % to {second:g} % in {step['seconds']} s; copies replaced: {step['handed_over']}. "
        f"{step['answered']} requests answered, {step['failed_requests']} failed; "
        f"the longest took {step['longest_ms']} ms.\n"
    )


def _alone(step: Recording) -> Iterator[str]:
    yield "### Four loads alone\n"
    yield LOADS
    names = ("load", "sm_percent", "latency_ms", "spread_ms", "batches", "memory_gib", "power_w", "read_mhz")
    yield from _table(names, ([row[name] for name in names] for row in step["rows"]))


def _pairs(step: Recording) -> Iterator[str]:
    yield "### Pairs\n"
    rows = (
        (" + ".join(row["loads"]), " + ".join(f"{share:g} %" for share in row["sm_percents"]), *row["latency_ms"])
        for row in step["rows"]
    )
    yield from _table(("loads", "shares", "first, ms", "second, ms"), rows)


def _clocks(step: Recording) -> Iterator[str]:
    yield "### Clocks\n"
    names = ("clock_mhz", "read_mhz", "latency_ms", "idle_w", "power_w")
    yield from _table(names, ([row[name] for name in names] for row in step["rows"]))


def _real_model(step: Recording) -> Iterator[str]:
    yield "### A real model\n"
    yield f"{step['model']}.\n"
    names = ("batch", "sm_percent", "latency_ms", "spread_ms", "memory_gib", "power_w", "start_seconds")
    yield from _table(names, ([row[name] for name in names] for row in step["rows"]))


def _profiler(step: Recording) -> Iterator[str]:
    yield "### The profiler\n"
    yield f"Load: {step['load']}; {step['measurements']} measurements, chosen as in a campaign."
    yield f"On settings that it has not seen its curve errs {100 * step['error']:.2g} %."
    yield f"{step['covered']} of {len(step['rows'])} stay below q90.\n"
    names = ("batch", "sm_percent", "latency_ms", "foretold_ms", "q90_ms")
    yield from _table(names, ([row[name] for name in names] for row in step["rows"]))


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(name.replace("_", " ") for name in heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(_cell(value) for value in row) + " |"
    yield ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

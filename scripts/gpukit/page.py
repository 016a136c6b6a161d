"""Writes what recordings of the kit say: the part about one of them, and docs/gpu-evidence.md about all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from scripts.gpukit import client_parts
from scripts.gpukit.markup import Found, plain_text, table
from scripts.gpukit.privacy import LEFT_OUT, map_text
from scripts.gpukit.recording import KeptRecording, Recording

HEAD = """\
# What has been seen on GPUs

You have an NVIDIA GPU and ten minutes? In a clone of this repository,

    scripts/gpu_kit.sh docker OUT

builds an image and tries on your GPU what gpuwright does with one: NVML, MPS, limits of SMs and memory, four loads
alone and in pairs, a hand-over under requests, and the profiler. What your card cannot do is left out, and the reason
is recorded. You need Linux, Docker, NVIDIA's driver and its container toolkit. Nothing else should run on the GPU
meanwhile.

Without Docker `scripts/gpu_kit.sh run OUT` does the same with Python 3.11 to 3.13. If that Python has PyTorch with
torchvision, it also runs a real model, ResNet-50; the image has no PyTorch, which is many times its size.

- **It ends.** After ten minutes at most, building apart, all that it started is gone. It runs without network.
- **It leaves the GPU's settings alone.** They are read before and after, and you see whether they differ. Only
  `--change-settings` tries clocks, power limit and compute mode, as root, and restores them. It also releases a
  lock of clocks, because NVML cannot tell whether there was one.
- **It sends nothing.** It writes one archive of three small text files to OUT. Read them (`tar -xOzf ARCHIVE | less`),
  then send us the archive, the SHA-256 that the kit printed, and the name that this page is to give you.
- **It names nobody.** Names of the machine, its user and its processes, paths and addresses are left out, and UUIDs
  are replaced. The card, versions and timings stay.

`scripts/gpu_kit.sh run --help` lists the options. `--stand-in` runs without a GPU, in a clone after `make install`:
this shows that the kit works, and nothing about GPUs.

`scripts/gpu_kit.sh keep ARCHIVE --sender NAME` keeps what you sent, if all its checksums hold and its replies of NVML,
played to the agent's own code, make the same GPU. A checksum shows that a file is the one that was sent; that it
comes from such a card is its sender's word.

## Recordings
"""
LEARNED = """\
## What recordings taught us

- **Limits of SMs hold, and are rounded to pairs.** A copy sees an even number of multiprocessors, on an H200 never
  fewer than 8, so 5 % is 6 % there. A client that takes the limit out of its own environment has the whole GPU:
  limits bind the willing.
- **A hand-over loses no request**, and takes less than a second where the model is small; ResNet-50 starts within 2
  to 5 s.
- **A copy that is killed while it computes harms nobody.** A copy that writes where it may not takes the contexts of
  all clients; MPS admits nobody until each of them has ended. `gpuwright-serve` answered 500 for ever then. It ends
  now, and the next copy serves.
- **A copy that is stopped harms nobody either, and MPS cannot end it.** `terminate_client` waited for it in vain, and
  the daemon answered nobody else meanwhile. A kill freed its memory within .06 s, and its neighbour went on. The agent
  emptied the whole GPU then. It kills a stopped copy now, and one that MPS has not terminated after three seconds.
- **Who runs outside MPS is seen.** NVML lists it, and the agent refuses it: it has all multiprocessors, and a batch of
  a copy with 25 % took 13.6 instead of 8.7 ms beside it.
- **Another owner's MPS is found from both sides**, and neither starts beside the other. A process that only has the
  name of MPS's server keeps starts away, too.
- **A full GPU says `CUDA error 2`**, from `cuDevicePrimaryCtxRetain` where a context has no room, and from
  `cuMemAlloc_v2` later.
- **A context's memory grows with its share**, from .15 GiB at 25 % to .51 GiB at 100 %: measure memory at the largest
  share that a plan may give.
- **JSON hid the GPU.** 32 images took ResNet-50 1,022 ms at 25 %, nearly all of which was reading numbers out of
  JSON; raw numbers take 23 ms.
- **A curve from nine measurements errs 1.3 %** on settings that it has not seen; all eight stayed below q90.
- **Neighbours cost little on this card.** No load took more than a fifth longer beside another than alone with the
  same share; the worst were two that wait for launches. The loads are small for it, and say nothing about large
  models.
"""
MADE_UP = ("alone", "pairs", "clocks", "profiler")  # by stand-ins
LOADS = """\
The four loads are limited by arithmetic, by memory bandwidth, by the cache, and by the time between launches
(`gpuwright-serve --kernel`). Times are means of single batches in milliseconds, by the server's clock.
"""


def render_page(kept: Sequence[KeptRecording]) -> str:
    """Returns docs/gpu-evidence.md. Stand-ins have no row: they show that the kit works, and nothing about GPUs."""
    real = [one for one in kept if not one.recording.is_stand_in]
    lines = [HEAD]
    if real:
        lines.insert(0, lines.pop().replace("## Recordings\n", f"{LEARNED}\n## Recordings\n"))
        lines += table(("card", "driver", "CUDA", "sender", "day", "steps", "SHA-256"), [_row(one) for one in real])
    else:
        lines.append(
            "**None yet: gpuwright has never run on a GPU.** This table is empty until somebody sends a recording.\n"
        )
    if len(kept) > len(real):
        lines.append(f"Recordings of stand-ins, which test the kit and are no evidence: {len(kept) - len(real)}.\n")
    for one in real:
        lines.append(render_recording(one.recording, one.sender))
    return "\n".join(lines)


def _row(kept: KeptRecording) -> Sequence[str]:
    recording = kept.recording
    done = sum(step.outcome in ("done", "cut short") for step in recording.steps.values())
    steps = f"{done} of {len(recording.steps)}"
    cells = (recording.card, recording.driver, recording.cuda, kept.sender, recording.at, steps, kept.sha256)
    return [plain_text(cell) for cell in cells]


def render_recording(recording: Recording, sender: str = "") -> str:
    """Returns the section of one recording, as its archive holds it, too."""
    plain = msgspec.convert(map_text(msgspec.to_builtins(recording), plain_text), Recording)
    return "\n".join(_section(plain, sender))


def _section(recording: Recording, sender: str) -> Iterator[str]:
    kind = ", stand-in" if recording.is_stand_in else ""
    yield f"## {recording.card}{kind}{sender and f', from {sender}'}\n"
    cuda = recording.cuda or "unknown"
    yield f"Recorded {recording.at} in {recording.seconds} s; driver {recording.driver}, CUDA {cuda};"
    yield f"{recording.architecture}, {recording.kernel}, Python {recording.python};"
    yield f"gpuwright {recording.gpuwright}, commit {recording.commit}.\n"
    changed = ", ".join(recording.list_changed_settings())
    yield f"**These settings differed afterwards: {changed}.**\n" if changed else "Settings were as before.\n"
    if recording.processes_before:
        yield f"{recording.processes_before} processes of others were on the GPU.\n"
    if not sender:
        yield f"{LEFT_OUT}\n"
    rows = [(name, step.outcome, step.seconds, step.why) for name, step in recording.steps.items()]
    yield from table(("step", "outcome", "seconds", "why"), rows)
    if recording.is_stand_in:
        yield f"The times of loads are made up there, and are left out: {', '.join(MADE_UP)}.\n"
    for name, part in PARTS.items():
        step = recording.steps.get(name)
        if step and step.outcome in ("done", "cut short") and not (recording.is_stand_in and name in MADE_UP):
            yield from part(step.found)


def _settings(step: Found) -> Iterator[str]:
    yield "### Settings\n"
    rows = [
        (name, setting.get("requested"), setting.get("applied"), setting.get("refused", ""))
        for name, setting in step.items()
    ]
    yield from table(("setting", "requested", "read back", "refused"), rows)


def _shares(step: Found) -> Iterator[str]:
    yield "### Limits of SMs\n"
    yield f"Multiprocessors that a copy sees, of {step['of']}.\n"
    rows = [(row["sm_percent"], row["sm_count"], "yes" if row["is_client"] else "no") for row in step["rows"]]
    yield from table(("share in %", "sees", "client of MPS"), rows)


def _memory(step: Found) -> Iterator[str]:
    yield "### Limit of memory\n"
    outcome = "was refused" if step["is_refused"] else "**was not refused**"
    yield f"A copy with a limit of {step['limit_gib']} GiB that claimed {step['wanted_gib']} GiB {outcome}. It said:\n"
    yield from (f"- {line}" for line in step["said"][-3:])
    yield ""


def _handover(step: Found) -> Iterator[str]:
    yield "### A hand-over under requests\n"
    first, second = step["sm_percents"]
    yield (
        f"From {first:g} % to {second:g} % in {step['seconds']} s; copies replaced: {step['handed_over']}. "
        f"{step['answered']} requests answered, {step['failed_requests']} failed; "
        f"the longest took {step['longest_ms']} ms.\n"
    )


def _alone(step: Found) -> Iterator[str]:
    yield "### Four loads alone\n"
    yield LOADS
    names = ("load", "sm_percent", "latency_ms", "spread_ms", "batches", "memory_gib", "power_w", "read_mhz")
    yield from table(names, ([row[name] for name in names] for row in step["rows"]))


def _pairs(step: Found) -> Iterator[str]:
    yield "### Pairs\n"
    rows = (
        (" + ".join(row["loads"]), " + ".join(f"{share:g} %" for share in row["sm_percents"]), *row["latency_ms"])
        for row in step["rows"]
    )
    yield from table(("loads", "shares", "first, ms", "second, ms"), rows)


def _clocks(step: Found) -> Iterator[str]:
    yield "### Clocks\n"
    names = ("clock_mhz", "read_mhz", "latency_ms", "idle_w", "power_w")
    yield from table(names, ([row[name] for name in names] for row in step["rows"]))


def _real_model(step: Found) -> Iterator[str]:
    yield "### A real model\n"
    yield f"{step['model']}.\n"
    names = ("batch", "sm_percent", "latency_ms", "spread_ms", "memory_gib", "power_w", "start_seconds")
    yield from table(names, ([row[name] for name in names] for row in step["rows"]))


def _profiler(step: Found) -> Iterator[str]:
    yield "### The profiler\n"
    yield f"Load: {step['load']}; {step['measurements']} measurements, chosen as in a campaign."
    yield f"On settings that it has not seen its curve errs {100 * step['error']:.2g} %."
    yield f"{step['covered']} of {len(step['rows'])} stay below q90.\n"
    names = ("batch", "sm_percent", "latency_ms", "foretold_ms", "q90_ms")
    yield from table(names, ([row[name] for name in names] for row in step["rows"]))


PARTS: Mapping[str, Callable[[Found], Iterator[str]]] = {
    "settings": _settings,
    "shares": _shares,
    "memory": _memory,
    **client_parts.PARTS,
    "handover": _handover,
    "alone": _alone,
    "pairs": _pairs,
    "clocks": _clocks,
    "realModel": _real_model,
    "profiler": _profiler,
}

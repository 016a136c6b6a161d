"""Plays recorded replies of NVML: makes a stand-in of them and compares what the agent sees with what it saw then.

A process of its own (`python -m scripts.gpukit.playing FILE`), because the binding loads one library for ever, and
because nothing that somebody sent is to harm the process that keeps it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from agents.devices.nvml.device import NvmlDevice
from tests.support import fake_mps, nvml_stub
from tests.support.nvml_stub.state import H100, VARIABLE

OF_THE_MACHINE = frozenset({"uuid", "pci", "index", "mig", "serial"})
_REPLY = re.compile(r"[\w .()/+-]{1,4096}")


def play_device(found: Mapping[str, Any]) -> list[str]:
    """Returns what differs between the recorded GPU and the one that its replies make."""
    recorded, replies = found["gpu"], found["replies"]
    for name, value in replies.items():
        if name not in H100 or type(value) not in (int, str) or not _REPLY.fullmatch(str(value)):
            return [f"the reply {name!r} is none of NVML's"]
    with tempfile.TemporaryDirectory() as folder:
        state = nvml_stub.NvmlState(Path(folder))
        state.add(0, **replies)
        for name in H100.keys() - replies.keys():
            state.drop(0, name)
        os.environ[VARIABLE] = folder
        if "mps" in recorded["abilities"]:
            os.environ["PATH"] = fake_mps.on_path()
        nvml_stub.load()
        device = NvmlDevice(Path(folder) / "originals.json")
        (gpu,) = device.gpus()
        device.close()
    played = msgspec.json.decode(msgspec.json.encode(asdict(gpu) | {"abilities": sorted(gpu.abilities)}))
    names = (played.keys() | recorded.keys()) - OF_THE_MACHINE
    return [
        f"{name} is {played.get(name)!s:.60}, and was {recorded.get(name)!s:.60}"
        for name in sorted(names)
        if played.get(name) != recorded.get(name)
    ]


if __name__ == "__main__":
    differences = play_device(msgspec.json.decode(Path(sys.argv[1]).read_bytes()))
    print("; ".join(differences))
    raise SystemExit(bool(differences))

"""The state of the stand-in for NVML: what its GPUs are, what goes wrong with them, and what was written to them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "GPUWRIGHT_NVML_STUB"
GIB = 2**30
LOST, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN = 15, 4, 3, 999
# An H100 in small: every call that the agent makes has an answer.
H100: dict[str, str | int] = {
    "name": "NVIDIA H100 80GB HBM3",
    "capability": "9.0",
    "sm_count": 132,
    "cores": 16896,
    "memory_bytes": 80 * GIB,
    "memory_clocks": "1593 2619",
    "clocks": " ".join(str(mhz) for mhz in range(345, 1981, 15)),
    "power_min_mw": 200_000,
    "power_max_mw": 700_000,
    "power_default_mw": 700_000,
    "power_limit_mw": 700_000,
    "power_mw": 90_500,
    "energy_mj": 123_456_789,
    "utilization": 0,
    "temperature_c": 34,
    "sm_clock_mhz": 1980,
    "clock_reasons": 0,
    "ecc_uncorrected": 0,
    "compute_mode": 0,
    "event_types": 8,
}


# A slice of it: three sevenths. It has no clock, power or compute mode of its own.
PART: dict[str, str | int] = {"name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "sm_count": 60, "memory_bytes": 40 * GIB}


def uuid_of(number: int) -> str:
    return f"GPU-{number:08x}-1111-2222-3333-{number:012x}"


def part_uuid_of(number: int, part: int) -> str:
    return f"MIG-{number:08x}-{part:04x}-2222-3333-{number:012x}"


class NvmlState:
    """A folder that the C code reads at each call. GPUs are numbered as they were added, for ever."""

    def __init__(self, folder: Path, gpus: int = 0) -> None:
        self.folder = folder
        self._events = itertools.count()
        (folder / "events").mkdir(parents=True, exist_ok=True)
        for number in range(gpus):
            self.add(number)

    def add(self, number: int, **facts: str | int) -> str:
        """Another GPU; its UUID."""
        (self._gpu(number) / "pids").mkdir(parents=True, exist_ok=True)
        named: dict[str, str | int] = {"uuid": uuid_of(number), "pci": f"00000000:{number + 1:02X}:00.0"}
        named["serial"] = f"16512300{number:05d}"
        for key, value in (H100 | named | facts).items():
            self.set(number, key, value)
        return str(self.get(number, "uuid"))

    def divide(self, number: int, *parts: int) -> tuple[str, ...]:
        """Puts a GPU in MIG mode, with devices of these numbers; their UUIDs."""
        self.set(number, "mig_mode", "1 1")
        for part in parts:
            (self._gpu(number) / f"mig{part}" / "pids").mkdir(parents=True, exist_ok=True)
            numbered: dict[str, str | int] = {
                "uuid": part_uuid_of(number, part),
                "gpu_instance": part + 1,
                "compute_instance": 0,
            }
            for key, value in (PART | numbered).items():
                self.set(number, f"mig{part}/{key}", value)
        return tuple(part_uuid_of(number, part) for part in parts)

    def number(self, uuid: str) -> int:
        for folder in self.folder.glob("gpu*"):
            if (folder / "uuid").read_text().strip() == uuid:
                return int(folder.name.removeprefix("gpu"))
        raise KeyError(uuid)

    def set(self, number: int, key: str, value: str | int) -> None:
        _put(self._gpu(number) / key, str(value))

    def get(self, number: int, key: str) -> str | None:
        try:
            return (self._gpu(number) / key).read_text().strip()
        except FileNotFoundError:
            return None

    def drop(self, number: int, key: str) -> None:
        """The GPU does not say or do this: NOT_SUPPORTED."""
        (self._gpu(number) / key).unlink(missing_ok=True)

    def lose(self, number: int) -> None:
        self.set(number, "lost", 1)

    def give_back(self, number: int) -> None:
        self.drop(number, "lost")

    def fails(self, number: int, calls: Sequence[str] | str, code: int) -> None:
        for call in [calls] if isinstance(calls, str) else calls:
            self.set(number, f"fault.{call}", f"error {code}")

    def hangs(self, number: int, call: str) -> None:
        """Until `works`."""
        self.set(number, f"fault.{call}", "hang")

    def ignores(self, number: int, call: str) -> None:
        """A setter says success and does nothing."""
        self.set(number, f"fault.{call}", "ignored")

    def works(self, number: int) -> None:
        """Every call does again."""
        for fault in self._gpu(number).glob("fault.*"):
            fault.unlink(missing_ok=True)

    def process(self, number: int, pid: int, memory_gib: float | None, under_mps: bool = False) -> None:
        used = -1 if memory_gib is None else round(memory_gib * GIB)
        _put(self._gpu(number) / "pids" / str(pid), f"{used} {int(under_mps)}")

    def ended(self, number: int, pid: int) -> None:
        (self._gpu(number) / "pids" / str(pid)).unlink(missing_ok=True)

    def xid(self, number: int, xid: int) -> None:
        _put(self.folder / "events" / f"{os.getpid()}-{next(self._events):09d}", f"{number} {xid}")

    def history(self) -> list[tuple[int, str, int]]:
        """Every call of a setter: the GPU, the call without its `nvmlDevice`, and what was to be set."""
        try:
            lines = (self.folder / "history").read_text().splitlines()
        except FileNotFoundError:
            return []
        words = [line.split() for line in lines]
        return [(int(gpu[3:]), call.removeprefix("nvmlDevice"), int(value)) for gpu, call, value in words]

    def _gpu(self, number: int) -> Path:
        return self.folder / f"gpu{number}"


def _put(path: Path, text: str) -> None:
    """Whole or not at all: a call may read at any moment."""
    beside = path.with_name(f"{path.name}.py.new")
    beside.write_text(text + "\n")
    beside.replace(path)

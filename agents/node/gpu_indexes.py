"""Decides which device each GPU index means: an index is a place on the PCI bus, whatever board is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from agents.seams.device import GpuDevice

MOST_NAMED = 4


class IndexedGpu(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The device that an index means, and the place and board that it had when it was last seen."""

    uuid: str
    place: str = ""
    serial: str = ""


GpuIndexes = Mapping[int, IndexedGpu]


@dataclass(frozen=True, slots=True)
class SettledIndexes:
    """The device of each index, and what stands in the way of another one; a device without an index is not used."""

    gpus: GpuIndexes
    waits: bool = False  # until nothing runs on devices that are to change their index
    message: str = ""


def settle_indexes(known: GpuIndexes, found: Sequence[GpuDevice], held: Mapping[int, str]) -> SettledIndexes:
    """Returns the device of each index.

    An index follows its place, else its UUID, else the serial of its board. A single device that is left takes the only
    index that is left; more are not guessed. A machine with nothing of what is known is numbered again by place, and so
    is one of which nothing is known, but for devices that copies run on (`held`, by the index that they have there).
    Nothing changes while a copy runs on a device that is to change.
    """
    devices = _sort_devices(found)
    kept = known or {index: IndexedGpu(uuid) for index, uuid in held.items() if uuid in devices}
    fixed = _match(kept, devices)
    gone = sorted(kept.keys() - fixed.keys())
    new = [gpu for gpu in devices.values() if gpu.uuid not in {gpu.uuid for gpu in fixed.values()}]
    message = ""
    if kept and new and not fixed:
        kept, gone = {}, []
    elif len(gone) == len(new) == 1:
        fixed[gone[0]], new = new[0], []
    elif gone and new:
        message, new = _say_unclear([(index, kept[index]) for index in gone], new), []
    for gpu in new:
        fixed[next(index for index in range(len(kept) + len(fixed) + 1) if index not in {*kept, *fixed})] = gpu
    settled = {**kept, **{index: _make_entry(gpu, kept.get(index)) for index, gpu in fixed.items()}}
    waiting = [gpu for gpu in _changing(known, settled) if gpu in held.values()]
    if waiting:
        return SettledIndexes(known, True, f"other GPUs are taken over once nothing runs on {', '.join(waiting)}")
    return SettledIndexes(dict(sorted(settled.items())), message=message)


def _sort_devices(found: Sequence[GpuDevice]) -> dict[str, GpuDevice]:
    """Returns the devices by UUID, in the order of their places."""
    in_order: dict[str, GpuDevice] = {}
    for gpu in sorted(found, key=lambda gpu: (gpu.pci, gpu.index)):
        in_order.setdefault(gpu.uuid, gpu)
    return in_order


def _match(known: GpuIndexes, devices: Mapping[str, GpuDevice]) -> dict[int, GpuDevice]:
    """Returns the device of each index that still has one: of its place, else its UUID, else its board."""
    fixed: dict[int, GpuDevice] = {}
    marks: tuple[tuple[Callable[[GpuDevice], str], Callable[[IndexedGpu], str]], ...] = (
        (lambda gpu: gpu.place, lambda gpu: gpu.place),
        (lambda gpu: gpu.uuid, lambda gpu: gpu.uuid),
        (lambda gpu: gpu.serial, lambda gpu: gpu.serial),
    )
    for mark, known_mark in marks:
        taken = {gpu.uuid for gpu in fixed.values()}
        left = [gpu for gpu in devices.values() if gpu.uuid not in taken]
        single = {name for name, times in Counter(map(mark, left)).items() if name and times == 1}
        by_mark = {mark(gpu): gpu for gpu in left if mark(gpu) in single}
        for index, gpu in known.items():
            if index not in fixed and known_mark(gpu) in by_mark:
                fixed[index] = by_mark.pop(known_mark(gpu))
    return fixed


def _make_entry(gpu: GpuDevice, before: IndexedGpu | None) -> IndexedGpu:
    place = gpu.place or (before.place if before and before.uuid == gpu.uuid else "")
    return IndexedGpu(gpu.uuid, place, gpu.serial)


def _changing(known: GpuIndexes, settled: GpuIndexes) -> Iterator[str]:
    """Yields the UUIDs that lose their index, or get one that another had."""
    before = {gpu.uuid: index for index, gpu in known.items()}
    after = {gpu.uuid: index for index, gpu in settled.items()}
    for uuid, index in before.items():
        if after.get(uuid) != index:
            yield uuid


def _say_unclear(gone: Sequence[tuple[int, IndexedGpu]], new: Sequence[GpuDevice]) -> str:
    lost = _join_names([f"GPU {index} ({_name_device(gpu.uuid, gpu.place)})" for index, gpu in gone])
    there = _join_names([_name_device(gpu.uuid, gpu.place) for gpu in new])
    return (
        f"{lost} are gone and {there} are new, each at another place; which is which cannot be told, so the new ones "
        "are not used: join the node again to number its GPUs again"
    )


def _name_device(uuid: str, place: str) -> str:
    return f"{uuid} at {place}" if place else uuid


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more

"""All that a step may touch: devices, their MPS daemons, processes, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

from agents.runtime import CopyRuntime
from agents.seams.device import Device, Mps
from agents.talk.copy_client import CopyClient


@dataclass(frozen=True, slots=True)
class NodeDrivers:
    """The seams, as one thing to hand around."""

    device: Device
    mps: Mps
    runtime: CopyRuntime
    talk: CopyClient


class CopyFailed(Exception):
    """A copy cannot get any further up; `reason` is one word, the message says more."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message[:500]


class ClientStuck(Exception):
    """A client that can be ended in no safe way: its GPU must be recycled."""

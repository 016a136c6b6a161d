"""Everything that a step may act on: devices, MPS daemons, processes, and the copies' HTTP endpoints."""

from __future__ import annotations

from dataclasses import dataclass

from agents.runtime import CopyRuntime
from agents.seams.device import Device, Mps
from agents.talk.copy_client import CopyClient


@dataclass(frozen=True, slots=True)
class NodeDrivers:
    """The node's seams in one object."""

    device: Device
    mps: Mps
    runtime: CopyRuntime
    talk: CopyClient


class CopyFailed(Exception):
    """A copy cannot be started; `reason` is one word, `message` a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message[:500]


class ClientStuck(Exception):
    """An MPS client that cannot be ended safely: its GPU must be recycled."""

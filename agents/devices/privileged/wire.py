"""The messages between agent and root helper: one JSON line each way per connection."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from agents.devices.nvml.writer import DEFAULT_MODE, EXCLUSIVE_PROCESS_MODE, PROHIBITED_MODE

VERSION = 1
MOST_BYTES = 512  # of a line; the longest request has about 150

# `(?!\n)`: Python lets `$` match before a last line feed.
Uuid = Annotated[str, Meta(max_length=100, pattern=r"^(GPU|MIG)-[0-9A-Za-z/.-]+$(?!\n)")]
Megahertz = Annotated[int, Meta(ge=1, le=100_000)]
Milliwatts = Annotated[int, Meta(ge=1, le=100_000_000)]

Mode = Literal["default", "prohibited", "exclusive"]
MODES: dict[int, Mode] = {
    DEFAULT_MODE: "default",
    PROHIBITED_MODE: "prohibited",
    EXCLUSIVE_PROCESS_MODE: "exclusive",
}
MODE_NUMBERS = {name: number for number, name in MODES.items()}


class Hello(Struct, tag="hello", tag_field="verb", forbid_unknown_fields=True):
    """Asks which helper process answers."""


class LockClock(Struct, tag="lock_clock", tag_field="verb", forbid_unknown_fields=True):
    """Locks the SM clock at one of the clocks that the device supports."""

    uuid: Uuid
    mhz: Megahertz


class ResetClock(Struct, tag="reset_clock", tag_field="verb", forbid_unknown_fields=True):
    """Releases the SM clock to the driver."""

    uuid: Uuid


class SetPower(Struct, tag="set_power_mw", tag_field="verb", forbid_unknown_fields=True):
    """Sets the power limit within the range that the device allows."""

    uuid: Uuid
    mw: Milliwatts


class SetComputeMode(Struct, tag="set_compute_mode", tag_field="verb", forbid_unknown_fields=True):
    """Decides who may open the device: everyone, or the MPS server alone. `prohibited` only if it was so before."""

    uuid: Uuid
    mode: Mode


DeviceChange: TypeAlias = LockClock | ResetClock | SetPower | SetComputeMode
HelperRequest: TypeAlias = Hello | DeviceChange


class HelperReply(Struct, omit_defaults=True):
    """The outcome of a request. Numbers have the request's own unit; a compute mode is NVML's number."""

    ok: bool
    trouble: str = ""  # a Trouble of agents/seams/device.py
    message: str = ""
    before: int | None = None
    applied: int | None = None  # as read back; None if it cannot be read
    version: int = 0  # of hello
    started: str = ""  # a new value: the helper restarted, and the settings are as before the first change


requests = msgspec.json.Decoder(HelperRequest)
replies = msgspec.json.Decoder(HelperReply)
encoder = msgspec.json.Encoder()

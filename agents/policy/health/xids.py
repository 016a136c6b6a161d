"""Lists what each XID means for the GPU that reports it, and what an operator must do.

By NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors, its immediate actions for A100 and later). XIDs of an
application leave the GPU as it is. An unlisted XID fences the GPU for its back-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Weight(StrEnum):
    """The effect of an XID on the GPU's health."""

    APPLICATION = "application"  # one process failed; the GPU is as it was
    NOTED = "noted"  # the GPU works on, degraded, until it is reset
    FENCED = "fenced"  # nothing starts on it for its back-off
    RESET = "reset"  # it must be reset first
    REBOOT = "reboot"  # its node must be rebooted first
    REPAIR = "repair"  # the machine needs inspection


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID code."""

    code: int
    weight: Weight
    what: str
    do: str = ""


_RESET = "drain it and reset it: nvidia-smi --gpu-reset -i UUID"
_REBOOT = "reboot the node; if it comes back, have the card and its slot looked at"

LISTED = (
    Xid(46, Weight.RESET, "the GPU stopped processing", _RESET),
    Xid(48, Weight.RESET, "an uncorrectable (double-bit) memory error", _RESET),
    Xid(54, Weight.REPAIR, "auxiliary power is not connected", "check the power cables of the card"),
    Xid(62, Weight.RESET, "its micro-controller halted", _RESET),
    Xid(63, Weight.NOTED, "a memory row is to be remapped at the next reset", "reset it when convenient"),
    Xid(64, Weight.RESET, "a memory row could not be remapped", f"{_RESET}; replace the card if it repeats"),
    Xid(74, Weight.RESET, "an NVLink failed, here or at its other end", f"{_RESET}; look at nvidia-smi nvlink -e"),
    Xid(78, Weight.FENCED, "a vGPU could not be started", "update driver and firmware"),
    Xid(79, Weight.REBOOT, "it has fallen off the bus", _REBOOT),
    Xid(92, Weight.NOTED, "many single-bit memory errors", "watch it; ask the vendor if it continues"),
    Xid(93, Weight.NOTED, "the wear limit of its InfoROM was passed", "ask the vendor"),
    Xid(94, Weight.NOTED, "a memory error that one application bore", "reset it when convenient"),
    Xid(95, Weight.RESET, "a memory error that several applications bore", _RESET),
    Xid(110, Weight.RESET, "a security fault", f"{_RESET}; undo recent changes of hardware"),
    Xid(119, Weight.RESET, "its system processor (GSP) does not answer", f"{_RESET}; power the node off if it repeats"),
    Xid(120, Weight.RESET, "its system processor (GSP) failed", f"{_RESET}; power the node off if it repeats"),
    Xid(121, Weight.NOTED, "corrected errors on the link to the CPU", "reset it when convenient"),
    Xid(136, Weight.RESET, "a link could not be trained", _RESET),
    Xid(140, Weight.RESET, "memory errors that could not be recorded", _RESET),
    Xid(143, Weight.RESET, "it could not be initialised", _RESET),
    *(Xid(code, Weight.FENCED, "an NVLink error", "reset it if XID 154 asks for it") for code in range(144, 149)),
    Xid(149, Weight.RESET, "an NVLink went down", _RESET),
    Xid(150, Weight.FENCED, "an NVLink error", "reset it if XID 154 asks for it"),
    Xid(151, Weight.REBOOT, "its keys could not be rotated", "restart the virtual machine"),
    Xid(154, Weight.FENCED, "the driver asks for a recovery that the kernel log names", "look for XID 154 in dmesg"),
    Xid(155, Weight.RESET, "an NVLink was taken down", _RESET),
    Xid(156, Weight.RESET, "a faulty part of it is to be retired", _RESET),
    Xid(157, Weight.NOTED, "a faulty part of it could not be retired", "replace the card if its errors continue"),
    Xid(158, Weight.RESET, "it does not answer", _RESET),
    *(Xid(code, Weight.NOTED, "its power smoothing changed", "look it up in dmesg") for code in range(162, 166)),
    Xid(167, Weight.FENCED, "PCI Express timed out", "look at the kernel's PCI errors in dmesg"),
    Xid(168, Weight.NOTED, "it has less memory than it should", "switch ECC on, so that bad rows are remapped"),
    Xid(169, Weight.RESET, "its micro-controller halted", _RESET),
    Xid(171, Weight.RESET, "an uncorrectable error of its DRAM", _RESET),
    Xid(172, Weight.RESET, "an uncorrectable error of its SRAM", _RESET),
)
# 109 (context switch timeout) asks for a reset in the catalogue; but under MPS and time slicing applications cause it,
# and GPU schedulers count it as theirs. Its consequences show in other ways: MPS FAULT, 46, 119.
_OF_APPLICATIONS = (
    8, 11, 13, 31, 32, 37, 38, 39, 40, 41, 43, 44, 45, 60, 66, 67, 68, 69, 70, 71, 72, 75, 76, 77, 80,
    *range(82, 87), 88, 89, *range(96, 110), *range(126, 136), 137, 139, 141, 142, 152, 153, 160, 161,
)  # fmt: skip
_BY_CODE = {xid.code: xid for xid in LISTED}
_BY_CODE |= {code: Xid(code, Weight.APPLICATION, "an application failed") for code in _OF_APPLICATIONS}


def meaning(code: int) -> Xid:
    """Returns the meaning of a code; an unlisted code fences."""
    return _BY_CODE.get(code) or Xid(code, Weight.FENCED, "an error that is not listed", "look it up in dmesg")

"""Rules by which the root helper refuses a request before it reaches the driver."""

from __future__ import annotations

from agents.devices.privileged.root_devices import AllowedSettings
from agents.devices.privileged.wire import DeviceChange, HelperReply, LockClock, SetPower
from agents.seams.device import Trouble


def check_change(change: DeviceChange, allowed: AllowedSettings) -> HelperReply | None:
    """Returns a refusal that names what is allowed; None when the request may reach the device."""
    if isinstance(change, LockClock):
        return _clock(change, allowed)
    if isinstance(change, SetPower):
        return _power(change, allowed)
    return None


def _clock(change: LockClock, allowed: AllowedSettings) -> HelperReply | None:
    if not allowed.clocks_mhz:
        return refuse(Trouble.NOT_SUPPORTED, f"{change.uuid} reports no supported clocks")
    if change.mhz not in allowed.clocks_mhz:
        low, high = min(allowed.clocks_mhz), max(allowed.clocks_mhz)
        text = (
            f"{change.mhz} MHz is not one of the {len(allowed.clocks_mhz)} clocks of {change.uuid}, {low}..{high} MHz"
        )
        return refuse(Trouble.OUT_OF_RANGE, text)
    return None


def _power(change: SetPower, allowed: AllowedSettings) -> HelperReply | None:
    if not allowed.power_max_mw:
        return refuse(Trouble.NOT_SUPPORTED, f"{change.uuid} reports no supported power limits")
    if not allowed.power_min_mw <= change.mw <= allowed.power_max_mw:
        text = f"{change.mw} mW is outside {allowed.power_min_mw}..{allowed.power_max_mw} mW of {change.uuid}"
        return refuse(Trouble.OUT_OF_RANGE, text)
    return None


def refuse(trouble: Trouble, message: str) -> HelperReply:
    return HelperReply(ok=False, trouble=trouble.value, message=message)

"""Prints which GPUs its container sees, and waits to be ended: the doctor's trial of how pods get theirs."""

from __future__ import annotations

import signal
import sys
import threading

from agents.seams.device import DeviceError

SEES = "sees:"
DEADLINE_SECONDS = 10.0  # of each call of the driver


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    sys.stdout.write(f"{SEES} {' '.join(list_gpus())}\n")
    sys.stdout.flush()
    stopped.wait()


def list_gpus() -> list[str]:
    from agents.devices.nvml.binding import Binding

    try:
        binding = Binding(DEADLINE_SECONDS)
    except DeviceError as error:
        sys.stderr.write(f"{error}\n")
        return []
    try:
        return sorted(binding.enumerate())
    finally:
        binding.close()


if __name__ == "__main__":
    main()

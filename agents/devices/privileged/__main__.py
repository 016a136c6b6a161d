"""`python -m agents.devices.privileged --user gpuwright`: runs this node's root helper until SIGTERM."""

from __future__ import annotations

import argparse
import grp
import logging
import pwd
import sys
from collections.abc import Callable
from pathlib import Path

from agents.devices.privileged.server import serve
from agents.devices.privileged.setup import SOCKET, STATE, CannotServe, HelperSetup
from agents.seams.device import DeviceError

DRIVER_SECONDS = 2.0  # of one call: the agent waits five seconds for its answer


def main(words: list[str] | None = None) -> int:
    """Returns 0 after restoring every setting, 1 after logging why it cannot serve."""
    args = parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        uid = _number(args.user, "user", lambda name: pwd.getpwnam(name).pw_uid)
        gid = _number(args.group, "group", lambda name: grp.getgrnam(name).gr_gid)
        place = HelperSetup(args.socket, args.state_dir, uid, gid)
        if place.uid is None and place.gid is None:
            raise CannotServe("name who may connect: --user NAME, --group NAME or both")
        from agents.devices.nvml.binding import Binding
        from agents.devices.privileged.nvml_devices import NvmlRootDevices

        serve(place, NvmlRootDevices(Binding(deadline_seconds=DRIVER_SECONDS)))
    except (CannotServe, DeviceError) as error:
        logging.error("%s", error)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m agents.devices.privileged", description=__doc__)
    arguments.add_argument("--user", metavar="NAME", help="the agent's user, by name or number")
    arguments.add_argument("--group", metavar="NAME", help="or the agent's primary group")
    arguments.add_argument("--socket", metavar="FILE", type=Path, default=SOCKET, help="default %(default)s")
    arguments.add_argument("--state-dir", metavar="DIR", type=Path, default=STATE, help="default %(default)s")
    return arguments


def _number(name: str | None, kind: str, look_up: Callable[[str], int]) -> int | None:
    if name is None or name.isdigit():
        return int(name) if name else None
    try:
        return look_up(name)
    except KeyError:
        raise CannotServe(f"unknown {kind} {name!r}") from None


if __name__ == "__main__":
    sys.exit(main())

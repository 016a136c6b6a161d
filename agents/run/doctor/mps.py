"""Checks that MPS, which enforces shares, can be run and reached."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from agents.devices.mps import processes
from agents.devices.mps.control import MpsControl
from agents.devices.mps.grammar import LONGEST_SOCKET_PATH_BYTES
from agents.devices.mps.program import PROGRAM, has_newer_protocol
from agents.host.local_socket import NotRunning, ask
from agents.run.doctor.findings import DoctorFinding, fail, join_items, ok, warn
from agents.run.doctor.gpus import DEADLINE_SECONDS, DriverFacts
from agents.run.doctor.machine import is_there, nearest
from agents.seams.device import DeviceError, MpsState, Trouble

LONGEST_NAME_IN_IT = len("/GPU-00000000-0000-0000-0000-000000000000/control")


def program() -> Iterator[DoctorFinding]:
    where = shutil.which(PROGRAM)
    if where is None:
        advice = "Install it; it belongs to the driver (Debian: nvidia-cuda-mps, Ubuntu: nvidia-compute-utils)."
        yield fail("mps program", f"{PROGRAM} is not in PATH: shares of a GPU cannot be enforced", advice)
        return
    yield ok("mps program", where)
    more = (
        "; the program has protocol 3, too, whose server can hold limits"
        if has_newer_protocol(where, DEADLINE_SECONDS)
        else ""
    )
    yield ok("mps protocol", f"protocol 2 is used, whose limits stand in the clients' own variables{more}")


def folder(pipes: Path) -> Iterator[DoctorFinding]:
    """Checks the folder of the daemons' pipes: writable only by us, with a path short enough for sockets."""
    there = nearest(pipes)
    if not os.access(there, os.W_OK | os.X_OK):
        advice = f"mkdir -p -m 700 {pipes} and chown it to user {os.geteuid()}, or choose another --state-dir."
        yield fail("mps folder", f"{there} is not writable by user {os.geteuid()}", advice)
    elif len(os.fsencode(pipes)) + LONGEST_NAME_IN_IT > LONGEST_SOCKET_PATH_BYTES:
        room = LONGEST_SOCKET_PATH_BYTES - LONGEST_NAME_IN_IT - len("/mps")
        advice = f"Use a --state-dir of at most {room} bytes."
        yield fail("mps folder", f"the path {pipes} is too long for a socket", advice)
    elif there == pipes and pipes.stat().st_mode & 0o002:
        yield fail("mps folder", f"every user may write to {pipes}", f"chmod o-w {pipes}")
    else:
        yield ok("mps folder", f"{pipes}{'' if there == pipes else ' can be created'}")


def launcher(folder: Path) -> Iterator[DoctorFinding]:
    """Checks that somebody starts daemons outside of the agent's own container."""
    try:
        ask(folder, "hello")
    except (NotRunning, ValueError):
        advice = "Run `gpuwright agent mps` in a pod of its own on this node; the chart's DaemonSet does."
        yield fail("mps launcher", f"nobody in {folder} starts MPS daemons, so no copy can", advice)
        return
    yield ok("mps launcher", f"daemons are started by who answers in {folder}, and outlive the agent")


def daemons(facts: DriverFacts, pipes: Path) -> Iterator[DoctorFinding]:
    """Checks each GPU's MPS daemon; the agent starts those that do not run yet."""
    if shutil.which(PROGRAM) is None:
        return
    control = MpsControl(pipes, deadline_seconds=DEADLINE_SECONDS)
    idle: list[int] = []
    for gpu in facts.gpus:
        name = f"mps daemon {gpu.index}"
        if others := control.find_foreign(gpu.uuid):
            advice = "Stop it (echo quit | nvidia-cuda-mps-control, in its pipe directory): a GPU has one owner of MPS."
            shown = join_items(map(processes.describe, others))
            yield fail(name, f"MPS runs that this agent did not start, so nothing is started here: {shown}", advice)
            continue
        try:
            look = control.look(gpu.uuid) if is_there(pipes / gpu.uuid) else None
        except DeviceError as error:
            if error.trouble is not Trouble.DOWN:
                advice = "Drain this GPU (gpuwright agent drain --gpu), then kill the daemon; the agent starts another."
                yield fail(name, error.what, advice)
                continue
            look = None
        if look is None:
            idle.append(gpu.index)
        elif look.state is MpsState.FAULT:
            advice = "The agent fences the GPU until the affected clients have ended; look for the XID in dmesg."
            yield fail(name, "its server is in state FAULT and accepts no new clients", advice)
        else:
            yield ok(name, f"answers; {look.state.value}, {len(look.all_clients())} clients")
    if idle:
        yield ok("mps daemon", f"not running yet for GPU {join_items(idle)}: the agent starts them")


def users() -> Iterator[DoctorFinding]:
    """Checks who runs MPS: a server serves one user, and clients of another wait forever without an error."""
    owners = {pid: processes.owner_uid(pid) for pid in processes.all_processes()}
    others = {pid: uid for pid, uid in owners.items() if uid not in (None, os.geteuid())}
    if others:
        text = join_items(f"process {pid} of user {uid}" for pid, uid in sorted(others.items()))
        advice = "Stop it (echo quit | nvidia-cuda-mps-control): clients of another user wait forever."
        yield fail("mps user", f"MPS runs as another user: {text}", advice)
    elif os.geteuid() == 0:
        advice = "Run the agent, and with it MPS and all instances, as its own user (docs/agent.md)."
        yield warn("mps user", "MPS and its clients would run as root", advice)
    else:
        yield ok("mps user", f"MPS and its clients run as user {os.geteuid()}")

"""Checks that the machine lets the agent work: folders, shared memory, ports, cgroups, templates."""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agents.keeper.ports import FIRST_PORT, LAST_PORT
from agents.node.state_folder import StateFolder
from agents.run.doctor.findings import DoctorFinding, fail, join_items, ok, warn
from agents.runtime.cgroups import Cgroups
from agents.templates.form import TemplateForm
from agents.templates.reading import TemplateError, read

LEAST_SHM_MIB = 256
LEAST_DISK_MIB = 256
PORTS_TRIED = 200


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Iterator[DoctorFinding]:  # noqa: S108  tested, not used
    """Checks /dev/shm, through which MPS and model servers pass data; containers often have only 64 MiB."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        text = f"{folder} cannot be written to: {error.strerror}"
        yield fail("shared memory", text, f"Mount a tmpfs at {folder} (in a container: --ipc=host or --shm-size).")
        return
    free_mib = shutil.disk_usage(folder).free // 2**20
    if free_mib < LEAST_SHM_MIB:
        advice = "In a container: --ipc=host or --shm-size=1g. Otherwise: mount -o remount,size=50% /dev/shm"
        yield warn("shared memory", f"{folder} has {free_mib} MiB free", advice)
    else:
        yield ok("shared memory", f"{folder} has {free_mib} MiB free")


def state_folder(folder: Path) -> Iterator[DoctorFinding]:
    """Checks the folder of credential and journal: private to our user, writable, with enough space."""
    if not is_there(folder):
        if os.access(nearest(folder), os.W_OK | os.X_OK):
            yield ok("state folder", f"{folder} can be created")
        else:
            advice = f"mkdir -p -m 700 {folder} and chown it to user {os.geteuid()}, or choose another --state-dir."
            yield fail("state folder", f"{folder} cannot be created", advice)
        return
    found = folder.stat()
    if found.st_uid != os.geteuid():
        text = f"{folder} belongs to user {found.st_uid}, but this is user {os.geteuid()}"
        yield fail("state folder", text, f"chown -R {os.geteuid()} {folder}, or run this as the agent's user.")
        return
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        yield fail("state folder", f"other users may enter {folder} (mode {mode:o})", f"chmod 700 {folder}")
        return
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        text = f"{folder} cannot be written to: {error.strerror}"
        advice = "Free space, or mount it writable: without a journal the agent changes nothing."
        yield fail("state folder", text, advice)
        return
    free_mib = shutil.disk_usage(folder).free // 2**20
    if free_mib < LEAST_DISK_MIB:
        advice = "Free space: on a full disk the agent changes nothing."
        yield warn("state folder", f"{folder} has {free_mib} MiB free", advice)
    else:
        yield ok("state folder", f"{folder}, {free_mib} MiB free")


def credential(folder: Path) -> Iterator[DoctorFinding]:
    path = folder / "credential.json"
    try:
        found = StateFolder(folder).credential()
    except (OSError, msgspec.MsgspecError) as error:
        yield fail("credential", f"{path} cannot be read: {error}", "Join again, with a new token (docs/agent.md).")
        return
    if found is None:
        advice = "Run gpuwright agent join --server URL --node NAME ..., with a token from gpuwright token join."
        yield warn("credential", "this node has not joined a control plane yet", advice)
    elif (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        advice = f"chmod 600 {path}; if others may have read it, revoke it and join again."
        yield fail("credential", f"other users may read {path} (mode {mode:o})", advice)
    else:
        yield ok("credential", f"node {found.node} of {found.server}")


def ports(host: str) -> Iterator[DoctorFinding]:
    """Checks a sample of the ports that copies listen on."""
    sample = random.sample(range(FIRST_PORT, LAST_PORT + 1), PORTS_TRIED)
    free = sum(_bindable(host, port) for port in sample)
    low = _first_outgoing()
    if free == 0:
        text = f"of {PORTS_TRIED} ports tried on {host} within {FIRST_PORT}..{LAST_PORT}, none is free"
        yield fail("ports", text, "Another program uses them, or the address does not belong to this machine.")
    elif low is not None and low <= LAST_PORT:
        advice = f"sysctl -w net.ipv4.ip_local_port_range='{LAST_PORT + 1} 60999'"
        yield warn(
            "ports", f"outgoing connections use ports from {low} on, but copies need those up to {LAST_PORT}", advice
        )
    else:
        yield ok("ports", f"of {PORTS_TRIED} ports tried on {host} within {FIRST_PORT}..{LAST_PORT}, {free} are free")


def cgroups() -> Iterator[DoctorFinding]:
    """Checks for cgroups: with one for each copy, no child process can escape; without, copies carry marks only."""
    groups = Cgroups(Path(f"doctor-{os.getpid()}"))  # a name that no agent uses
    made, _ = groups.make("try")
    groups.mark_entered("try")
    groups.tidy()
    if made:
        yield ok("cgroups", "each copy gets its own cgroup")
    else:
        advice = "Set Delegate=yes in the agent's unit, on a machine with cgroup version 2."
        yield warn("cgroups", "none can be created: copies are recognised only by marks in their environment", advice)


def templates(folder: Path | None, models: Path, image: str | None) -> Iterator[DoctorFinding]:
    """Checks that templates can run here: as a process with its program installed, or as a container with an image.

    `image` is that of templates which name none; None where copies are processes.
    """
    try:
        known = read(folder, models)
    except TemplateError as error:
        for fault in error.faults:
            advice = "Correct the file; until then this template is not offered (docs/runtimes.md)."
            yield fail("templates", fault, advice)
        return
    lacks = {name: _lack(template.form, image) for name, template in known.items()}
    runnable = [name for name, lack in lacks.items() if not lack]
    if not runnable:
        advice = "Install the program of one of them, or write a template (docs/runtimes.md)."
        yield fail("templates", f"none of {join_items(known)} can run here", advice)
        return
    missing = [f"{name} ({lack})" for name, lack in lacks.items() if lack]
    yield ok("templates", f"can run {join_items(runnable)}" + (f"; cannot: {join_items(missing)}" if missing else ""))


def _lack(form: TemplateForm, image: str | None) -> str:
    """Returns why a template cannot run here; empty if it can."""
    if image is not None:
        return "" if form.image or image else "has no image"
    program = form.argv[0]
    return "" if "{" in program or shutil.which(program) else f"{program} is not installed"


def is_there(path: Path) -> bool:
    """Returns whether the path exists and its folders can be entered."""
    try:
        return path.exists()
    except OSError:
        return False


def nearest(path: Path) -> Path:
    """Returns the path, or the nearest existing folder above it."""
    return next(above for above in (path, *path.absolute().parents) if is_there(above))


def _bindable(host: str, port: int) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind((host, port))
    except OSError:
        return False
    return True


def _first_outgoing() -> int | None:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None

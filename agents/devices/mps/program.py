"""Runs the control program for one GPU's daemon; the outcome is its replies or a DeviceError."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agents.devices.mps import grammar, processes
from agents.devices.mps.exchange import TooLate, detach, run
from agents.host.plain_files import read_start
from agents.seams.device import DeviceError, Trouble

PROGRAM = "nvidia-cuda-mps-control"
NEWER_PROTOCOL = 3  # with named servers and namespaces, which hold limits; NVIDIA's drivers have it from release 615 on


class Program:
    """The pipe directory of a GPU is `root/UUID`; its logs are in `root/logs/UUID`, which no container gets."""

    def __init__(self, root: Path, program: str) -> None:
        self._root = root
        self._program = program

    def pipe(self, uuid: str) -> Path:
        return self._root / uuid

    def logs(self, uuid: str) -> Path:
        return self._root / "logs" / uuid

    def ask(self, uuid: str, commands: Sequence[str], until: float) -> tuple[tuple[str, ...], ...]:
        """Returns a reply to each command; raises UnreadableMpsOutput if one is doubtful."""
        printed = self.say(uuid, grammar.build_script(commands), until - time.monotonic())
        return grammar.split_replies(printed, len(commands))

    def say(self, uuid: str, commands: str, seconds: float) -> bytes:
        """Returns the output if the program could talk to the daemon; DeviceError DOWN where there is none."""
        pipe = self.pipe(uuid)
        if not pipe.is_dir():
            raise DeviceError(Trouble.DOWN, uuid, "no MPS daemon is running")
        with self._bound_time(uuid):
            printed = run([self._program], commands.encode(), self._environment(uuid), seconds)
        if printed.status == 0:
            return printed.output
        if grammar.NO_DAEMON.encode() in printed.output or processes.daemon_pid(pipe) is None:
            raise DeviceError(Trouble.DOWN, uuid, "no MPS daemon is running")
        raise DeviceError(Trouble.GARBLED, uuid, f"the MPS daemon broke the connection: status {printed.status}")

    def launch(self, uuid: str, seconds: float) -> None:
        """Starts a daemon, which need not answer yet."""
        printed = self.logs(uuid) / "start.txt"
        with self._bound_time(uuid):
            status = detach([self._program, "-d"], self._environment(uuid), printed, seconds)
        if status != 0:
            output = read_start(printed, 200).decode("ascii", "replace").strip()
            raise DeviceError(Trouble.DOWN, uuid, f"the MPS daemon does not start: {output or status}")

    @contextmanager
    def _bound_time(self, uuid: str) -> Iterator[None]:
        try:
            yield
        except TooLate:
            raise DeviceError(Trouble.TIMEOUT, uuid, "the MPS daemon does not answer") from None
        except FileNotFoundError:
            raise DeviceError(Trouble.NOT_SUPPORTED, uuid, f"{self._program} is not installed") from None
        except OSError as error:
            raise DeviceError(Trouble.UNKNOWN, uuid, f"{self._program}: {error}") from error

    def _environment(self, uuid: str) -> dict[str, str]:
        """Returns what daemon and commands are started with; by it others see which GPU they are for."""
        folders = {processes.PIPE: self.pipe(uuid), processes.LOGS: self.logs(uuid)}
        return _plain_environment(uuid) | {name: str(folder) for name, folder in folders.items()}


def has_newer_protocol(program: str, seconds: float) -> bool:
    """Returns whether the program speaks the newer protocol, by the help that it prints for it; it starts nothing."""
    try:
        printed = run([program, "--protocol", str(NEWER_PROTOCOL), "--help"], b"", _plain_environment(""), seconds)
    except (TooLate, OSError):
        return False
    return printed.status == 0 and b"namespace" in printed.output


def _plain_environment(devices: str) -> dict[str, str]:
    """Returns our environment without CUDA's variables: limits there would apply to the daemon and its clients."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
    return ours | {processes.DEVICES: devices}

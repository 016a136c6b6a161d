"""Runs the control program for one GPU's daemon; the outcome is its replies or a DeviceError."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agents.devices.mps import grammar, processes
from agents.host.plain_files import open_empty, read_start
from agents.seams.device import DeviceError, Trouble
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE

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
    return ours | {VISIBLE_DEVICES_VARIABLE: devices}


LONGEST_ANSWER_BYTES = 65_536
_KILLED_SECONDS = 0.5  # a killed process that has not ended by then is stuck in the kernel


class TooLate(Exception):
    """The program missed its deadline and was killed."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The program's output. Beyond LONGEST_ANSWER_BYTES it is cut off, since no valid answer is so long."""

    status: int
    output: bytes


def run(argv: Sequence[str], commands: bytes, environment: Mapping[str, str], seconds: float) -> Printed:
    """Runs it. Raises TooLate, or OSError where the program cannot be started."""
    until = time.monotonic() + seconds
    # Its own session, so that its children are killed with it.
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(commands)  # far less than a pipe holds, so it does not block
        output = _read(process.stdout.fileno(), until)
        try:
            return Printed(process.wait(max(0.0, until - time.monotonic())), output)
        except subprocess.TimeoutExpired:
            raise TooLate from None
    finally:
        _end(process)
        process.stdout.close()


def detach(argv: Sequence[str], environment: Mapping[str, str], printed: Path, seconds: float) -> int:
    """Starts a background program with its output in a file, and returns the exit status of the foreground part.

    A pipe would not do: the background part may keep it open, and reading would never end.
    """
    with os.fdopen(open_empty(printed), "wb") as file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise TooLate from None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_SECONDS)


def _read(descriptor: int, until: float) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    output = b""
    while len(output) <= LONGEST_ANSWER_BYTES:
        remaining = until - time.monotonic()
        if remaining <= 0 or not poll.poll(remaining * 1000):
            raise TooLate
        part = os.read(descriptor, LONGEST_ANSWER_BYTES)
        if not part:
            return output
        output += part
    raise TooLate  # it would print without end

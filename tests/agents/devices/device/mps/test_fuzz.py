"""A control program that prints garbage, breaks off, stalls or stays silent: never a hang, never a false client."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from pathlib import Path

import pytest

from agents.devices.mps import MpsControl
from agents.seams.device import DeviceError, MpsState, Trouble
from tests.agents.devices.device.mps.conftest import UUID
from tests.support.soak import scaled

RUNS = scaled(soak=1_000, everyday=100)
SERVER, CLIENTS = 7001, (8123, 8456, 91234)
# Its behaviour when asked for servers alone, for servers and their clients, and to cut a client off.
PROGRAM = """#!/bin/sh
asked=$(cat)
case "$asked" in
  *get_client_list*) . "$CUDA_MPS_PIPE_DIRECTORY/look" ;;
  get_server_list*) . "$CUDA_MPS_PIPE_DIRECTORY/servers" ;;
  *) . "$CUDA_MPS_PIPE_DIRECTORY/terminate" ;;
esac
"""
SERVERS = f"{SERVER}\n100.0\n" * 2


def look(state: str, clients: tuple[int, ...]) -> bytes:
    listed = "".join(f"{pid}\n" for pid in clients)
    return f"{SERVERS}{state}\n100.0\n{listed}100.0\n{listed}100.0\n".encode()


def spoiled(chance: random.Random, honest: bytes) -> bytes:
    """One thing is wrong with it: a stretch is missing, added or other, or there is noise all over it."""
    first, last = sorted((chance.randrange(len(honest) + 1), chance.randrange(len(honest) + 1)))
    lines = honest.splitlines(keepends=True)
    line = chance.randrange(len(lines))
    match chance.randrange(9):
        case 0:
            return honest[:first]
        case 1:
            return honest[last:]
        case 2:
            return honest[:first] + honest[last:]
        case 3:
            return honest[:first] + chance.randbytes(chance.randrange(1, 9)) + honest[first:]
        case 4:
            return honest[:first] + chance.randbytes(last - first) + honest[last:]
        case 5:
            return b"".join(lines[:line] + lines[line + 1 :])
        case 6:
            return b"".join([*lines[:line], chance.choice([*lines, b"4242\n", b"FAULT\n", b"\n"]), *lines[line:]])
        case 7:
            return bytes(chance.randrange(256) if chance.random() < 0.1 else byte for byte in honest)
    return chance.choice((b"MPS control: unexpected error\n", b"\n", b"0\n")) + honest


def behaviour(chance: random.Random, folder: Path, honest: bytes) -> str:
    """A piece of shell that answers, more or less."""
    kind = chance.choices(("honest", "spoiled", "slow", "silent", "never"), (20, 62, 8, 8, 2))[0]
    text = honest if kind in ("honest", "slow", "never") else spoiled(chance, honest)
    cut = chance.randrange(len(text) + 1)
    (folder / "one").write_bytes(text[:cut])
    (folder / "two").write_bytes(text[cut:])
    first, second = (f"cat {shlex.quote(str(folder / name))}" for name in ("one", "two"))
    match kind:
        case "honest" | "spoiled":
            return f"{first}; {second}; exit {chance.choice((0, 0, 0, 0, 1, 139))}"
        case "slow":
            return f"{first}; sleep 0.02; {second}"
        case "never":
            return chance.choice(
                (f"{first}; sleep 600; {second}", f"{first}; {second}; sleep 600", "yes", "sleep 600 & exit 0")
            )
    return chance.choice(("exit 0", "exit 1", "kill -9 $$", "echo Cannot find MPS control daemon process; exit 1"))


class Fuzzed:
    """The program, and how it behaves at each of its questions."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._chance = chance
        self.pipe = root / "pipes" / UUID
        self.pipe.mkdir(parents=True)
        self._program = root / "program"
        self._program.write_text(PROGRAM)
        self._program.chmod(0o755)

    def control(self) -> MpsControl:
        """One that has seen nothing yet."""
        return MpsControl(self.pipe.parent, str(self._program), deadline_seconds=0.3, terminate_seconds=0.3)

    def answers(self, question: str, honest: bytes, honestly: bool) -> None:
        folder = self.pipe / f"{question}.parts"
        folder.mkdir(exist_ok=True)
        if honestly:
            (folder / "whole").write_bytes(honest)
            behaves = f"cat {shlex.quote(str(folder / 'whole'))}"
        else:
            behaves = behaviour(self._chance, folder, honest)
        (self.pipe / question).write_text(behaves + "\n")


@pytest.mark.slow
def test_a_doubtful_answer_is_never_believed(root: Path) -> None:
    chance = random.Random(20261120)
    fuzzed = Fuzzed(root, chance)
    mps = fuzzed.control()
    outcomes: Counter[str] = Counter()
    for number in range(RUNS):
        if chance.random() < 0.3:
            mps = fuzzed.control()
        state, clients = chance.choice(("ACTIVE", "FAULT")), CLIENTS[: chance.randrange(4)]
        fuzzed.answers("servers", SERVERS.encode(), honestly=chance.random() < 0.5)
        fuzzed.answers("look", look(state, clients), honestly=False)
        try:
            daemon_status = mps.look(UUID)
            assert (daemon_status.state, daemon_status.all_clients()) == (
                MpsState(state.lower()),
                frozenset(clients),
            ), number
            outcomes["looked"] += 1
        except DeviceError as error:
            assert error.trouble in (Trouble.GARBLED, Trouble.TIMEOUT, Trouble.DOWN), number
            outcomes[error.trouble] += 1
        ends = chance.random() < 0.5
        fuzzed.answers("servers", SERVERS.encode(), honestly=True)
        fuzzed.answers("look", look(state, clients), honestly=True)
        fuzzed.answers("terminate", b"0\n100.0\n" if ends else b"1\n100.0\n", honestly=False)
        try:
            assert not mps.terminate(UUID, CLIENTS[0]) or (ends and CLIENTS[0] in clients), number
            outcomes["asked to end"] += 1
        except DeviceError as error:
            assert error.trouble in (Trouble.GARBLED, Trouble.TIMEOUT, Trouble.DOWN), number
    assert {"looked", Trouble.GARBLED, Trouble.TIMEOUT, Trouble.DOWN, "asked to end"} <= set(outcomes), outcomes
    assert left_running(fuzzed.pipe) == []


def left_running(pipe: Path) -> list[int]:
    left = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdecimal() else b""
        except OSError:
            continue
        if f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode() in environment.split(b"\0"):
            left.append(int(entry.name))
    return left

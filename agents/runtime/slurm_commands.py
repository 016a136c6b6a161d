"""Asks Slurm by its own commands: submits jobs, cancels them, and reads how they and the nodes are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agents.runtime import LaunchError

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
WAITING = ("PENDING", "CONFIGURING")
ACTIVE = (*WAITING, "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "SIGNALING", "STAGE_OUT")
SHARED = ("mps", "shard")  # the kinds of GRES that divide a GPU
_SECONDS = 5.0
_AWAY_SECONDS = 10.0  # for which a controller that has not answered is asked nothing: each command would wait again
_NO_ANSWER = ("Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted")
_GRES = re.compile(r"(\w+)(?::([^:(),]+))?:(\d+)(?:\([^)]*\))?")


class SlurmAway(LaunchError):
    """Slurm's controller does not answer, or a command of Slurm is not installed."""


class SlurmRefused(LaunchError):
    """Slurm answers, and refuses."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm's controller knows it."""

    number: int
    state: str
    reason: str  # why it waits, or why it ended


@dataclass(frozen=True, slots=True)
class SlurmGpu:
    """Where Slurm has one GPU: on which of its nodes, as which type, and what divides it."""

    node: str
    index: int  # among the node's GPUs
    gres: str  # mps or shard
    type: str  # empty where the node has no other GPU
    count: int  # the parts of the whole GPU


class SlurmCommands:
    """Slurm's commands as this user. `options` are the site's own of sbatch: partition, account, CPUs of a copy."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        self._options = tuple(options)
        self._away_until = 0.0
        missing = [command for command in COMMANDS if shutil.which(command) is None]
        if missing:
            raise SlurmAway(f"{', '.join(missing)} not found: Slurm's commands are not installed (slurm-client)")

    def submit(self, script: str, *words: str) -> None:
        """Submits a batch job that is never requeued: who planned it decides when it starts again."""
        self._run(("sbatch", "--quiet", *self._options, "--no-requeue", *words), script)

    def find_job(self, name: str) -> SlurmJob | None:
        """Returns the newest job of a name, also for some minutes after its end; None if there is none."""
        words = ("--noheader", "--states=all", f"--user={os.geteuid()}", f"--name={name}", "--format=%A|%T|%r")
        try:
            found = [line.split("|", 2) for line in self._run(("squeue", *words)).splitlines()]
            jobs = [SlurmJob(int(number), state, reason) for number, state, reason in found]
        except ValueError as error:
            raise SlurmAway(f"Slurm's squeue answers with something else: {error}") from error
        return max(jobs, key=lambda job: job.number, default=None)

    def cancel(self, name: str) -> None:
        """Cancels the jobs of a name that wait or run."""
        self._run(("scancel", f"--user={os.geteuid()}", f"--name={name}"))

    def read_exit(self, job: SlurmJob) -> int | None:
        """Returns a job's exit code, 128 and its number for a signal; None if Slurm has already forgotten the job."""
        found = re.search(
            r"\bExitCode=(\d+):(\d+)", self._run(("scontrol", "--oneliner", "show", "job", str(job.number)))
        )
        return None if found is None else 128 + int(found[2]) if int(found[2]) else int(found[1])

    def read_state(self, node: str) -> tuple[str, ...]:
        """Returns the state of a node and its flags, like IDLE and DRAIN."""
        found = re.search(r"\bState=(\S+)", self._show(node))
        return tuple(found[1].rstrip("*").split("+")) if found else ()

    def read_gpus(self, nodes: Sequence[str]) -> tuple[SlurmGpu, ...]:
        """Returns the GPUs of the nodes in their order; raises ValueError where none could be asked for."""
        return tuple(gpu for node in nodes for gpu in parse_gpus(node, self._show(node)))

    def read_gpus_here(self, nodes: Sequence[str], count: int) -> tuple[SlurmGpu, ...]:
        """Returns the same of this machine's nodes; raises ValueError also if they have not as many GPUs as it."""
        known = self.read_gpus(nodes)
        if len(known) != count:
            counts = f"Slurm knows {len(known)} GPUs of {', '.join(nodes)}, and this machine has {count}"
            raise ValueError(f"{counts}; name all of Slurm's nodes that are on it with --slurm-nodes")
        return known

    def _show(self, node: str) -> str:
        return self._run(("scontrol", "--oneliner", "show", "node", node))

    def _run(self, words: Sequence[str], text: str = "") -> str:
        """Runs a command with nothing of the agent's environment, which sbatch would hand on to the job."""
        if time.monotonic() < self._away_until:
            raise SlurmAway("Slurm's controller does not answer")
        environment = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
        given: dict[str, Any] = {"env": environment, "umask": 0o077, "cwd": "/", "timeout": _SECONDS}
        given |= {"encoding": "utf-8", "errors": "replace"}
        done: subprocess.CompletedProcess[str]
        try:
            done = subprocess.run(words, check=False, input=text, capture_output=True, **given)
        except subprocess.TimeoutExpired as error:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            raise SlurmAway(f"Slurm's controller has not answered {words[0]} for {_SECONDS:g} s") from error
        except OSError as error:
            raise SlurmAway(f"Slurm's {words[0]}: {error}") from error
        if done.returncode != 0:
            message = (done.stderr or done.stdout).strip()
            is_away = any(text in message for text in _NO_ANSWER)
            raise (SlurmAway if is_away else SlurmRefused)(f"Slurm's {words[0]}: {message or done.returncode}")
        return done.stdout


def parse_gpus(node: str, shown: str) -> Iterator[SlurmGpu]:
    """Yields the GPUs of a node as scontrol shows it; raises ValueError where no GPU of it could be asked for."""
    gres = (re.search(r"\bGres=(\S+)", shown) or ("", ""))[1]
    found = [(name, kind or "", int(count)) for name, kind, count in _GRES.findall(gres)]
    gpus = [(kind, count) for name, kind, count in found if name == "gpu"]
    total = sum(count for _, count in gpus)
    where = f"Slurm's node {node} has Gres={gres or '(null)'}"
    if total == 0:
        raise ValueError(f"{where}: no GPU")
    if total > 1 and (any(count > 1 for _, count in gpus) or len({kind for kind, _ in gpus}) < total):
        raise ValueError(f"{where}: Slurm would choose among them; give each GPU a Type of its own in gres.conf")
    usable = SHARED if total == 1 else SHARED[1:]  # mps divides one GPU of a node at a time; others would wait for it
    for index, (kind, _) in enumerate(gpus):
        parts = {name: count for name, named, count in found if named in ("", kind)}
        name = next((name for name in usable if name in parts), "")
        if not name:
            raise ValueError(f"{where}: nothing divides its GPUs; it needs {' or '.join(usable)}")
        yield SlurmGpu(node, index, name, kind, parts[name])

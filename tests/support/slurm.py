"""Slurm of the tests' own, from Debian's packages: munged, slurmctld and a slurmd for each node, on 127.0.0.1.

No test needs its GPUs: Slurm asks of one only that it is a character device, and sets variables.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.needs import need, need_root
from tests.support.patience import until
from tests.support.ports import free_port

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
ONE_GPU = "gpu:1,mps:100"
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,mps,shard
MpiDefault=none
Epilog={folder}/epilog
SchedulerParameters=batch_sched_delay=0
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE
"""


@dataclass(frozen=True, slots=True)
class Slurm:
    """One that answers; its nodes are idle."""

    folder: Path

    def ask(self, *words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True, env=self.environment).stdout

    @contextmanager
    def controller_away(self) -> Iterator[None]:
        """Stops slurmctld, which answers nobody until it is continued."""
        process = int((self.folder / "slurmctld.pid").read_text())
        os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process, signal.SIGCONT)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}


@contextmanager
def slurm_cluster(nodes: Mapping[str, str]) -> Iterator[Slurm]:
    """Starts Slurm with nodes of these GRES, like `gpu:1,mps:100`. Its jobs end with it."""
    need_root("to start Slurm's daemons")
    munged, slurmctld, slurmd = need("munged", "munge"), need("slurmctld", "slurmctld"), need("slurmd", "slurmd")
    # Not a test's own folder: munged's socket has a short path.
    with tempfile.TemporaryDirectory(prefix="slurm-") as made, ExitStack() as daemons:
        folder = Path(made)
        _configure(folder, nodes)
        slurm = Slurm(folder)
        key, listens = folder / "munge.key", folder / "munge.socket"
        key.touch(0o400)
        key.write_bytes(secrets.token_bytes(128))
        places = (f"--key-file={key}", f"--socket={listens}", f"--seed-file={folder}/seed")
        files = (f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log")
        daemons.enter_context(_daemon(slurm, munged, "--foreground", "--force", *places, *files))
        until(listens.exists, "munged listens")
        daemons.enter_context(_daemon(slurm, slurmctld, "-D"))
        for node in nodes:
            daemons.enter_context(_daemon(slurm, slurmd, "-D", "-N", node))
        states = ("sinfo", "--noheader", "--Node", "--format=%T")
        until(lambda: _answers(slurm, *states).split() == ["idle"] * len(nodes), lambda: _answers(slurm, *states))
        yield slurm
        slurm.ask("scancel", "--full", "--signal=KILL", "--user=root")
        slurm.ask("scancel", "--user=root")
        until(lambda: not slurm.ask("squeue", "--noheader"), "its jobs end")


def _configure(folder: Path, nodes: Mapping[str, str]) -> None:
    (folder / "state").mkdir()
    lines, gres, devices = [], [], iter(DEVICES)
    for node, kinds in nodes.items():
        (folder / node).mkdir()
        lines.append(f"NodeName={node} NodeAddr=127.0.0.1 Port={free_port()} CPUs=16 Gres={kinds}")
        names = [kind.rsplit(":", 1) for kind in kinds.split(",")]
        files = {name.partition(":")[2]: next(devices) for name, _ in names if name.partition(":")[0] == "gpu"}
        for name, count in names:
            gpu, _, kind = name.partition(":")
            of = f"NodeName={node} Name={gpu} File={files[kind]}"
            gres.append(of + (f" Type={kind}" if kind else "") + ("" if gpu == "gpu" else f" Count={count}"))
    config = CONFIG.format(host=socket.gethostname().partition(".")[0], port=free_port(), folder=folder)
    (folder / "slurm.conf").write_text(config + "\n".join(lines) + "\n")
    epilog = folder / "epilog"  # on one node so long that a job is COMPLETING when it is asked about
    epilog.write_text('#!/bin/sh\ntest "$SLURMD_NODENAME" != other || sleep 2\n')
    epilog.chmod(0o755)
    (folder / "gres.conf").write_text("\n".join(gres) + "\n")


def _answers(slurm: Slurm, *words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, env=slurm.environment).stdout


@contextmanager
def _daemon(slurm: Slurm, program: str, *words: str) -> Iterator[None]:
    log = slurm.folder / f"{Path(program).name}{words[-1]}.log".replace("/", "_")
    with log.open("w") as file:
        daemon = subprocess.Popen(
            [program, *words], env=slurm.environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield
    finally:
        daemon.terminate()
        daemon.wait()

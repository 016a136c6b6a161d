"""A node of the campaign: a real agent over a machine, a disk and a gateway that can fail at any moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.assignments import AssignedGpu, Assignment
from agents.control.assignments import AssignmentVerdict
from agents.control.contact import Contact
from agents.devices.simulated.gpu import POWER_EXPONENT
from agents.keeper.copies import Stage
from agents.runtime import CopyRuntime, Launch, Running
from agents.seams.device import Ability
from agents.seams.routes import Routes
from agents.templates import Filled
from agents.templates.reading import Template, read
from simulation.clock import Clock
from simulation.fleet_truth import FleetTruth
from tests.proofs.campaign.disk import PowerSafeDisk
from tests.proofs.campaign.gateway import CampaignGateway, NodeRoutes
from tests.support.simulated_processes import Behaviour, Process
from tests.support.whole_node import WholeNode

JOURNAL = "journal.jsonl"
BROKEN: Mapping[str, Mapping[str, Any]] = {  # what a process does in a broken place
    "crashes": {"crashes_seconds": 2.0},
    "never_warm": {"warms_up": False},
    "out_of_memory": {"memory_gib": 10_000.0},
    "cannot_start": {"starts": False},
}


class AgentKilled(BaseException):
    """The agent's process was killed in the middle of a step."""


class WatchedRuntime:
    """A runtime that notes starts whose intent is not durable, and kills the agent around a start on request."""

    def __init__(self, node: CampaignNode, inner: CopyRuntime) -> None:
        self._node = node
        self._inner = inner

    def start(self, launch: Launch) -> Running | None:
        if f'"{launch.copy}"'.encode() not in self._node.disk.durable(self._node.folder.path / JOURNAL):
            self._node.unrecorded.append(launch.copy)
        self._die_if("before")
        running = self._inner.start(launch)
        self._die_if("after")
        return running

    def close(self) -> None:
        self._inner.close()

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        self._inner.withdraw(copy, running)

    def find_called_away(self) -> dict[str, float]:
        return self._inner.find_called_away()

    def announce(self, running: Running) -> None:
        self._inner.announce(running)

    def find(self) -> tuple[Running, ...]:
        return self._inner.find()

    def alive(self, running: Running) -> bool:
        return self._inner.alive(running)

    def stopped(self, running: Running) -> bool:
        return self._inner.stopped(running)

    def pids(self, running: Running) -> frozenset[int]:
        return self._inner.pids(running)

    def end(self, running: Running, force: bool) -> None:
        self._inner.end(running, force)

    def tell(self, running: Running, signal_name: str) -> None:
        self._inner.tell(running, signal_name)

    def run_beside(self, running: Running, filled: Filled, seconds: float) -> bool:
        return self._inner.run_beside(running, filled, seconds)

    def exit_code(self, running: Running) -> int | None:
        return self._inner.exit_code(running)

    def log_tail(self, copy: str) -> str:
        return self._inner.log_tail(copy)

    def read_log(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        return self._inner.read_log(copy, offset, most_bytes)

    def tidy(self, copies: Collection[str]) -> None:
        self._inner.tidy(copies)

    def _die_if(self, when: str) -> None:
        if self._node.dies == when:
            self._node.dies = ""
            raise AgentKilled


class CampaignNode(WholeNode):
    """`contact` is the link: False while neither reports nor assignments pass. The agent applies its own rule to it."""

    def __init__(
        self,
        name: str,
        gpu_type: str,
        gpus: int,
        truth: FleetTruth,
        clock: Clock,
        folder: Path,
        disk: PowerSafeDisk,
        gateway: CampaignGateway,
    ) -> None:
        self.disk = disk
        self._gateway = gateway
        self.unrecorded: list[str] = []  # copies that were started before their intent was durable
        self.dies = ""  # before or after: the agent is killed at its next start of a copy
        self.caps_w: dict[int, float] = {}  # by GPU: the cap that its assignment carries
        self.cut_at_the_next_instance = False
        self.cut: Callable[[], None] = lambda: None  # cuts the link
        self.ready_here: set[str] = set()  # instances that have been ready here
        self.broken: dict[str, str] = {}  # by GPU: how every copy fails there, of BROKEN
        self.deleted: set[str] = set()  # services whose model file is gone
        self.has_templates = True
        self.linked_at = clock.seconds
        self._rule = Contact(lambda: clock.seconds)
        self._strangers = 0
        folder.mkdir(parents=True)
        self.models = folder / "models"
        for path in (self.models, folder / "checkpoints"):
            path.mkdir()
        super().__init__(name, gpu_type, gpus, truth, clock, folder, 0)
        for uuid in self.uuids:  # only the agent's own law keeps the cap
            self.machine.unsupported(uuid, Ability.CAP_POWER)

    def runtime(self) -> CopyRuntime:
        return WatchedRuntime(self, self._runtime)

    def templates(self) -> Mapping[str, Template]:
        """Returns the templates; every job of the campaign finds its files under the node's own root."""
        return read(models=self.models) if self.has_templates else {}

    def routes(self) -> Routes:
        return NodeRoutes(self._gateway, self.name, self.answers)

    def answers(self, copy: str) -> bool:
        """Returns whether the copy's process answers requests."""
        process = self._runtime.process(copy)
        return process is not None and process.exited_at is None and self.machine.now >= process.answers_at

    def processes(self) -> list[Process]:
        """Returns every process of ours that runs."""
        return [process for process in self.machine.processes.values() if process.exited_at is None]

    def offer(self, offered: Assignment) -> AssignmentVerdict:
        before = self.memory.assignment
        verdict = super().offer(self._capped(offered))
        if verdict is AssignmentVerdict.TAKE:
            self.folder.keep_memory(self.memory)
            self._cut_off(before, offered)
        return verdict

    def cap(self) -> None:
        """Puts the present caps into the assignment in force, as a new one would."""
        if self.memory.assignment is not None:
            self._change(self._capped(self.memory.assignment))

    def hand_over(self, draw: float) -> str:
        """Changes the shape of a ready instance, as a new plan would; returns the service."""
        ready = [copy for copy in self.alive() if copy.served and copy.stage is Stage.READY]
        assignment = self.memory.assignment
        if not ready or assignment is None:
            return ""
        chosen = ready[int(draw * len(ready))]
        self._change(
            msgspec.structs.replace(
                assignment,
                instances=tuple(
                    msgspec.structs.replace(instance, memory_gib=instance.memory_gib + 0.125)
                    if instance.id == chosen.instance
                    else instance
                    for instance in assignment.instances
                ),
            )
        )
        return chosen.service

    def _change(self, assignment: Assignment) -> None:
        self.memory = msgspec.structs.replace(self.memory, assignment=assignment)
        self.folder.keep_memory(self.memory)
        self.agent.offer(assignment)

    def _capped(self, assignment: Assignment) -> Assignment:
        """Returns the assignment with the caps of the moment, raised to what its clocks need at the least."""
        gpus = {gpu.index: msgspec.structs.replace(gpu, cap_w=None) for gpu in assignment.gpus}
        for index, cap_w in tuple(self.caps_w.items()):
            known = gpus.get(index, AssignedGpu(index))
            self.caps_w[index] = max(cap_w, self._least_cap_w(known))
            gpus[index] = msgspec.structs.replace(known, cap_w=self.caps_w[index])
        return msgspec.structs.replace(assignment, gpus=tuple(gpus.values()))

    def _least_cap_w(self, assigned: AssignedGpu) -> float:
        """Returns what the lowest clock that the assignment allows draws at full load: no law can keep less."""
        device = self.machine.slots[self.uuids[assigned.index]].gpu
        lowest_mhz = max(assigned.clock_mhz.min if assigned.clock_mhz else 0.0, device.clocks_mhz[0])
        pace: float = (lowest_mhz / device.clocks_mhz[-1]) ** POWER_EXPONENT
        return device.kind.idle_w + 1.05 * pace * (device.kind.power_default_w - device.kind.idle_w)

    def _cut_off(self, before: Assignment | None, after: Assignment) -> None:
        known = {instance.id for instance in before.instances} if before else set()
        new = [instance.id for instance in after.instances if instance.id not in known and instance.service]
        if self.cut_at_the_next_instance and new:
            self.cut_at_the_next_instance = False
            self.failing |= dict.fromkeys(new, 50)
            self.cut()

    def tick(self) -> None:
        if self.contact:
            self.linked_at = self.clock.seconds
            self._rule.note_answer()
        link = self.contact
        self.contact = not self._rule.is_lost
        try:
            super().tick()
        except AgentKilled:
            self.restart()
        finally:
            self.contact = link

    # Faults.

    def lose(self, gpu: int) -> None:
        self.lost.add(gpu)
        self.machine.lose(self.uuids[gpu])

    def give_back(self, gpu: int) -> None:
        self.lost.discard(gpu)
        self.machine.give_back(self.uuids[gpu])
        self.news = True

    def kill(self, copy: str) -> None:
        process = self._runtime.process(copy)
        if process is not None:
            process.exit_by(self.machine.now)

    def hang(self, copy: str) -> None:
        """Lets a process run on and answer nothing any more."""
        process = self._runtime.process(copy)
        if process is not None:
            process.behaviour = replace(process.behaviour, answers_seconds=inf)

    def restart(self) -> None:
        """Kills the agent, and starts another from what the old one left in its folder."""
        self.agent.keeper.close()
        memory = self.folder.memory()
        memory.incarnation = max(memory.incarnation, self.memory.incarnation) + 1
        self.folder.keep_memory(memory)
        self.memory = memory
        self._bodies.clear()
        self._inventory_sent = None
        self._rule = Contact(lambda: self.clock.seconds)
        self.agent = self.open_agent()
        if memory.assignment is not None:
            self.agent.offer(memory.assignment)
        self.news = True

    def cut_power(self) -> None:
        """Restarts the machine: every process ends, and the disk keeps only what was durable."""
        for process in self.processes():
            self.kill(process.launch.copy)
        self.machine.advance(self.machine.now)
        self.disk.cut_power(self.folder.path)
        self.restart()

    def _behave(self, launch: Launch) -> Behaviour:
        """Fails the next warm-ups of an instance as often as `failing` says."""
        behaviour = super()._behave(launch)
        instance = launch.copy.rsplit(".", 2)[0]
        if launch.gpu in self.broken:
            return replace(behaviour, **BROKEN[self.broken[launch.gpu]])
        if any(copy.id == launch.copy and copy.service in self.deleted for copy in self.agent.keeper.copies()):
            return replace(behaviour, **BROKEN["crashes"])
        if self.failing.get(instance, 0) <= 0:
            return behaviour
        self.failing[instance] -= 1
        return replace(behaviour, crashes_seconds=behaviour.warm_seconds / 2)

    def hold_from_outside(self, gpu: int, memory_gib: float) -> int:
        """Lets a process of another user take device memory; returns its PID."""
        self._strangers += 1
        pid = 900_000 + self._strangers
        # The other user opens what the agent has closed; the agent closes it again.
        self.machine.slots[self.uuids[gpu]].gpu.exclusive = False
        self.machine.open_outside(self.uuids[gpu], pid, memory_gib)
        return pid

"""Faults that leave a copy unable to run after its rollout, and invariant I8.

I8: what is planned and does not run, on a node that is heard, is moved, or its service or the whole fleet is named as
the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from agents.keeper.copies import NodeCopy, Stage
from app.control.domain.specs import DOWN_SECONDS
from app.control.planner import Planner
from tests.proofs.campaign.identity import IdentityFaults
from tests.proofs.campaign.node import CampaignNode
from tests.simulation.chaos import NothingToHit

DOWN_FAULTS = (
    "crash_loop",
    "never_warm",
    "out_of_memory",
    "port_taken",
    "copy_hangs",
    "model_file_deleted",
    "template_removed",
    "mps_daemon_down",
)
LOOKS_SECONDS = 5.0  # between two looks at what runs
NOTICED_SECONDS = 25.0  # by the agent: a check every twenty seconds, and two more
START_SECONDS = 120.0  # that its template allows a start: a copy that rises is waited for
TOLD_SECONDS = 10.0
MOST_DOWN_SECONDS = max(DOWN_SECONDS, START_SECONDS) + NOTICED_SECONDS + TOLD_SECONDS
TOLD = text("SELECT tenant || '/' || name AS service FROM event WHERE reason = 'service_suspect'")


def _count_tries(rollout: Mapping[str, Any], owner: str) -> int:
    """Returns how often a service has failed since it last ran well: each further start has twice as long."""
    failures = rollout.get("failures", ())
    return min(3, len({failure["at"] for failure in failures if failure["owner"] == owner and not failure["is_past"]}))


@dataclass
class DownFaults(IdentityFaults):
    """Injects them beside the other faults of the campaign, and checks I8."""

    _down_seconds: dict[tuple[str, str], float] = field(default_factory=dict)  # by node and instance
    _ran_at: float = 0.0  # of the last look at what runs
    _ran_under: Planner | None = None  # the leader at that look

    # A place where nothing runs any more, for a while.

    def crash_loop(self) -> None:
        self._break_place("crashes")

    def never_warm(self) -> None:
        self._break_place("never_warm")

    def out_of_memory(self) -> None:
        self._break_place("out_of_memory")

    def port_taken(self) -> None:
        self._break_place("cannot_start")

    def mps_daemon_down(self) -> None:
        """The daemon of a GPU ends, and does not come up."""
        node = self.pick_serving()
        copy = self._copy_of(node)
        daemon = node.machine.slots[copy.gpu].daemon
        self._hit(other for other in node.alive() if other.gpu == copy.gpu)
        daemon.startable = False
        daemon.stop()
        self._later(300, 900, lambda: setattr(daemon, "startable", True))

    def template_removed(self) -> None:
        """A node's agent starts again without its templates, and its copies end."""
        node = self.pick_serving()
        self._hit(node.alive())
        node.has_templates = False
        for copy in node.alive():
            node.kill(copy.id)
        node.restart()

        def back() -> None:
            node.has_templates = True
            node.restart()

        self._later(300, 900, back)

    def _break_place(self, how: str) -> None:
        """Kills what serves on a GPU, and lets no copy run there for a while."""
        node = self.pick_serving()
        copy = self._copy_of(node)
        gpu = copy.gpu
        node.broken[gpu] = how
        on_gpu = [other for other in node.alive() if other.served and other.gpu == gpu]
        self._hit(on_gpu)
        for other in on_gpu:
            node.kill(other.id)

        def back() -> None:
            node.broken.pop(gpu, None)

        self._later(300, 900, back)

    # A copy or a service.

    def copy_hangs(self) -> None:
        """A process goes on and answers nothing any more."""
        node = self.pick_serving()
        copy = self._copy_of(node)
        self._hit([copy])
        node.hang(copy.id)

    def model_file_deleted(self) -> None:
        """No copy of a service starts anywhere; one that ran ends."""
        node = self.pick_serving()
        copy = self._copy_of(node)
        back = self.delete_files({copy.service})
        self._later(300, 900, back)

    def delete_files(self, services: Collection[str]) -> Callable[[], None]:
        """Ends every copy of these services, and lets none start anywhere; returns what brings their files back."""
        for node in self.nodes:
            node.deleted |= set(services)
            copies = [copy for copy in node.alive() if copy.service in services]
            self._hit(copies)
            for copy in copies:
                node.kill(copy.id)

        def back() -> None:
            for node in self.nodes:
                node.deleted.difference_update(services)

        return back

    def _copy_of(self, node: CampaignNode) -> NodeCopy:
        ready = [copy for copy in node.alive() if copy.served and copy.stage is Stage.READY]
        if not ready:
            raise NothingToHit
        return self.rng.choice(ready)

    # Invariant I8.

    def look_at_what_runs(self) -> None:
        """Checks I8 now and then. While nobody leads, or a node is not heard, no time passes."""
        now, planner = self.simulation.clock.seconds, self.simulation.planner
        if now < self._ran_at:
            return
        self._ran_at = now + LOOKS_SECONDS
        is_led = self.simulation.plans and planner.store.epoch and planner is self._ran_under
        self._ran_under = planner
        if not is_led:
            self._down_seconds.clear()  # a new leader counts from what it sees itself
            return
        view = planner.store.view()
        rollout = view.plan.rollout if view.plan else {}
        before, self._down_seconds = self._down_seconds, {}
        held = rollout.get("held", {})
        for node in self.nodes:
            if not self._is_heard(node) or node.name not in view.assigned:
                continue
            running = {copy.instance for copy in node.alive() if node.answers(copy.id)}
            for line in view.assigned[node.name].instances:
                key = (node.name, line.id)
                if not line.service or line.id in running or line.id in rollout.get("pending", {}):
                    continue
                if "" in held or line.tenant in held:
                    continue
                if line.gpu in node.lost or self._is_named(line.owner, rollout.get("suspects", ())):
                    continue
                self._down_seconds[key] = before.get(key, 0.0) + LOOKS_SECONDS
                if self._down_seconds[key] > MOST_DOWN_SECONDS * 2 ** _count_tries(rollout, line.owner):
                    self._violated("I8", f"{line.id} of {line.owner} does not run on {node.name}, and stays there")

    def _is_heard(self, node: CampaignNode) -> bool:
        return node.contact and self.simulation.post.lines[node.name].how in ("as usual", "doubled")

    def _is_named(self, service: str, suspects: Collection[str]) -> bool:
        """Returns whether it stays because it fails wherever it is started, and an event says so."""
        if service not in suspects:
            return False
        return service in set(self.simulation.database.read(lambda c: list(c.execute(TOLD).scalars())))

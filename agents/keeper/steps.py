"""One step after the other for every copy, and what is recorded of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from agents.keeper import starting as rising
from agents.keeper import stopping as falling
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import ClientStuck, CopyFailed, NodeDrivers
from agents.keeper.failures import Failures
from agents.keeper.filler import Filler
from agents.keeper.ledger import CopyLedger
from agents.keeper.step_runner import Result, StepRunner, nothing
from agents.seams.device import DeviceError, GpuDevice, Trouble

STEP_SECONDS = 0.1  # between two steps of one copy
LOOK_SECONDS = 20.0  # between two looks at a ready copy: does it answer, is it limited?
PATIENCE = 3  # looks in a row that may fail
RENEW_SECONDS = 2.0  # between two trials to start an MPS daemon anew
TIDY_SECONDS = 60.0
LONGEST_TROUBLE_SECONDS = 120.0  # with the device, before a copy on its way up is given up

log = logging.getLogger(__name__)


class Steps:
    """The ticking thread sets steps off and records what they return; between the two they run beside it."""

    def __init__(
        self,
        ledger: CopyLedger,
        hands: NodeDrivers,
        filler: Filler,
        failures: Failures,
        crew: StepRunner,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._hands = hands
        self._filler = filler
        self._failures = failures
        self._crew = crew
        self._clock = clock
        self._wake = wake
        self._stepped: dict[str, float] = {}
        self._stuck: dict[str, str] = {}
        self._unrenewed: dict[str, str] = {}  # why a GPU's MPS daemon does not start
        self._misses: dict[str, int] = {}
        self._tidied_at = float("-inf")
        self.freed: set[str] = set()  # copies whose process and memory are gone
        self.recycled: dict[str, str] = {}  # GPUs that every copy must leave, and why

    def recycle(self, gpu: str, reason: str) -> None:
        """Empty a GPU and start its MPS daemon anew."""
        if gpu not in self.recycled:
            log.warning("GPU %s is recycled: %s", gpu, reason)
            self.recycled[gpu] = reason
        self._wake()

    def set_off(self, gpus: Mapping[str, GpuDevice], now: float, may_start: Callable[[NodeCopy], bool]) -> None:
        """Set off the next step of every copy that is due for one."""
        for copy in self._ledger.copies():
            if self._crew.is_busy(copy.id) or now - self._stepped.get(copy.id, 0.0) < STEP_SECONDS:
                continue
            if copy.stage is Stage.STARTING and not may_start(copy):
                continue
            if copy.stage in (Stage.STARTING, Stage.VERIFYING, Stage.WARMING) and copy.gpu in gpus:
                # Its warm-up may take a minute, or hang: what is to end, or to be looked at, does not wait for it.
                self._crew.do(copy.id, lambda copy=copy: self._rise(copy, gpus[copy.gpu]), slow=True)  # type: ignore[misc]
            elif copy.stage is Stage.ENDING and copy.id not in self.freed:
                alone = copy.gpu in self.recycled and self._is_alone(copy)
                self._crew.do(copy.id, lambda copy=copy, alone=alone: self._end(copy, alone))  # type: ignore[misc]
            elif copy.stage is Stage.READY and now - self._stepped.get(copy.id, 0.0) >= LOOK_SECONDS:
                self._crew.do(copy.id, lambda copy=copy: self._look(copy))  # type: ignore[misc]
            else:
                continue
            self._stepped[copy.id] = now
        if now - self._tidied_at > TIDY_SECONDS and not self._crew.is_busy("tidy"):
            self._tidied_at = now
            self._crew.do("tidy", self._tidy)
        for gpu in list(self.recycled):
            empty = not any(copy.gpu == gpu and copy.id not in self.freed for copy in self._ledger.copies())
            if empty and not self._crew.is_busy(gpu) and now - self._stepped.get(gpu, 0.0) > RENEW_SECONDS:
                self._stepped[gpu] = now
                self._crew.do(gpu, lambda gpu=gpu: self._renew(gpu))  # type: ignore[misc]

    def _is_alone(self, copy: NodeCopy) -> bool:
        others = [other for other in self._ledger.copies() if other.gpu == copy.gpu and other.id != copy.id]
        return all(other.id in self.freed or other.id in self._stuck for other in others)

    # Steps, which run beside the ticking and return what is to be recorded.

    def _rise(self, copy: NodeCopy, gpu: GpuDevice) -> Result:
        try:
            filled = self._filler.fill(copy)
            further = rising.start_copy(rising.StartContext(copy, filled, gpu), self._hands, self._clock())
        except CopyFailed as fell:
            reason, message = fell.reason, fell.message
            return lambda: self.fall(copy, reason, message, self._clock())
        except DeviceError as error:
            if self._clock() - copy.since > LONGEST_TROUBLE_SECONDS:
                said = str(error)
                return lambda: self.fall(copy, "device_trouble", said, self._clock())
            return self._trouble(copy, error)
        return (lambda: self._advance(copy, further)) if further is not None else nothing

    def _end(self, copy: NodeCopy, alone: bool) -> Result:
        try:
            ended = falling.stop_copy(copy, self._filler.filled(copy), self._hands, self._clock(), alone)
        except ClientStuck as stuck:
            said = str(stuck)

            def note() -> None:
                self._stuck[copy.id] = said
                self.recycle(copy.gpu, "client_stuck")

            return note
        return (lambda: self.freed.add(copy.id)) if ended else nothing

    def _tidy(self) -> Result:
        self._hands.runtime.tidy({copy.id for copy in self._ledger.copies()})
        return nothing

    def _look(self, copy: NodeCopy) -> Result:
        """Whether a ready copy answers, and is still limited."""
        assert copy.running is not None
        filled = self._filler.filled(copy)
        try:
            limited = bool(self._hands.runtime.pids(copy.running) & self._hands.mps.clients(copy.gpu))
        except DeviceError as error:
            return self._trouble(copy, error)
        answers = filled is None or filled.health is None or self._hands.talk.ask(copy.port, filled.health).ok
        return lambda: self._seen(copy, limited, answers)

    def _renew(self, gpu: str) -> Result:
        try:
            self._hands.mps.stop(gpu)
            self._hands.mps.start(gpu)
        except DeviceError as error:
            if self._unrenewed.get(gpu) != str(error):  # tried every two seconds, said once
                log.warning("the MPS daemon of GPU %s does not start: %s", gpu, error)
                self._unrenewed[gpu] = str(error)
            return nothing
        return lambda: self._renewed(gpu)

    # What is recorded of steps.

    def _advance(self, before: NodeCopy, after: NodeCopy) -> None:
        now = self._ledger.get(before.id)
        if now is not None and now.stage is before.stage:
            self._ledger.record(msgspec.structs.replace(after, wanted=now.wanted))
            self._stepped.pop(before.id, None)
            self._wake()
        elif now is not None and after.running is not None and now.running is None:
            # It was to go before it had started: what was started must go too.
            self._ledger.record(msgspec.structs.replace(now, running=after.running))

    def fall(self, copy: NodeCopy, reason: str, message: str, now: float) -> None:
        """It gets no further up: down with it, and a rest before the next is tried."""
        current = self._ledger.get(copy.id)
        if current is None or not current.rising:
            return
        ready = now - current.since if current.stage is Stage.READY else 0.0
        self._failures.note(current.wanted, reason, message, ready, now)
        log.warning("%s fell: %s: %s", copy.id, reason, message)
        routed = current.served and current.stage in (Stage.ROUTING, Stage.READY)
        self._ledger.record(current.at(Stage.DRAINING if routed else Stage.ENDING, now, reason, message))

    def _trouble(self, copy: NodeCopy, error: DeviceError) -> Result:
        if error.trouble in (Trouble.FAULT, Trouble.DOWN):
            return lambda: self.recycle(copy.gpu, f"mps_{error.trouble}")
        said = str(error)
        log.warning("%s: %s", copy.id, said)
        return nothing

    def _seen(self, copy: NodeCopy, limited: bool, answers: bool) -> None:
        if limited and answers:
            self._misses.pop(copy.id, None)
            return
        self._misses[copy.id] = self._misses.get(copy.id, 0) + 1
        if self._misses[copy.id] < PATIENCE:
            self._stepped[copy.id] = self._clock() - LOOK_SECONDS + 1.0  # look again soon
            return
        reason = "not_under_mps" if not limited else "unresponsive"
        self.fall(copy, reason, f"seen {PATIENCE} times in a row", self._clock())

    def _renewed(self, gpu: str) -> None:
        log.info("the MPS daemon of GPU %s was started anew", gpu)
        self._unrenewed.pop(gpu, None)
        self.recycled.pop(gpu, None)
        for copy in self._ledger.copies():
            if copy.gpu == gpu:
                self._stuck.pop(copy.id, None)

    def forget(self, copy: NodeCopy) -> None:
        """It is gone."""
        self._filler.forget(copy.id)
        self._stepped.pop(copy.id, None)
        self._misses.pop(copy.id, None)
        self._stuck.pop(copy.id, None)
        self.freed.discard(copy.id)

"""Takes every copy through its steps, one at a time, and records the results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from agents.keeper import starting, stopping, swapping
from agents.keeper.adapters import AdapterLoader
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.drivers import ClientStuck, CopyFailed, NodeDrivers
from agents.keeper.exits import EXITED, ExitVerdict, JobExits
from agents.keeper.failures import Failures
from agents.keeper.filler import Filler
from agents.keeper.ledger import CopyLedger
from agents.keeper.step_runner import Result, StepRunner, do_nothing
from agents.runtime import ExitUndecided, LaunchError
from agents.seams.device import DeviceError, GpuDevice, Trouble

STEP_SECONDS = 0.1  # between two steps of one copy
CHECK_SECONDS = 20.0  # between two checks of a ready copy: does it answer, are its limits in force?
PATIENCE_CHECKS = 3  # in a row that fail before the copy is stopped
RESTART_SECONDS = 2.0  # between two attempts to restart an MPS daemon, or to do what nobody answered for
TIDY_SECONDS = 60.0
LONGEST_TROUBLE_SECONDS = 120.0  # of device errors before a starting copy is given up

log = logging.getLogger(__name__)


class Steps:
    """Starts steps and records their results on the keeper's thread; the steps themselves run on workers."""

    def __init__(
        self,
        ledger: CopyLedger,
        drivers: NodeDrivers,
        filler: Filler,
        failures: Failures,
        runner: StepRunner,
        clock: Callable[[], float],
        wake: Callable[[], None],
        exits: JobExits,
        units_of: Callable[[NodeCopy], float],
    ) -> None:
        self._ledger = ledger
        self._drivers = drivers
        self._filler = filler
        self._failures = failures
        self._runner = runner
        self._clock = clock
        self._wake = wake
        self._exits = exits
        self._units_of = units_of
        self.adapters = AdapterLoader(filler, drivers.talk, clock)
        self._stepped: dict[str, float] = {}
        self._stuck: dict[str, str] = {}
        self._restart_errors: dict[str, str] = {}  # by GPU: why its MPS daemon does not start
        self._misses: dict[str, int] = {}
        self._put_off_for: dict[str, str] = {}  # by copy: why it could not be ended last
        self._sent = stopping.SentSignals()
        self._tidied_at = float("-inf")
        self.freed: set[str] = set()  # copies whose process and memory are gone
        self.recycled: dict[str, str] = {}  # GPUs that every copy must leave, with the reason

    def recycle(self, gpu: str, reason: str) -> None:
        """Empties a GPU and restarts its MPS daemon."""
        if gpu not in self.recycled:
            log.warning("GPU %s is recycled: %s", gpu, reason)
            self.recycled[gpu] = reason
        self._wake()

    def set_off(self, gpus: Mapping[str, GpuDevice], now: float, may_start: Callable[[NodeCopy], bool]) -> None:
        """Starts the next step of every copy that is due for one."""
        for copy in self._ledger.copies():
            if self._runner.is_busy(copy.id) or now - self._stepped.get(copy.id, 0.0) < STEP_SECONDS:
                continue
            if copy.stage is Stage.STARTING and not may_start(copy):
                continue
            if copy.stage in (Stage.STARTING, Stage.VERIFYING, Stage.WARMING) and copy.gpu in gpus:
                # A warm-up may take a minute or hang: no other copy may wait for it.
                self._runner.do(copy.id, lambda copy=copy: self._start(copy, gpus[copy.gpu]), waits=True)  # type: ignore[misc]
            elif copy.stage is Stage.ENDING and copy.id not in self.freed:
                alone = any(gpu in self.recycled for gpu in copy.devices) and self._is_alone(copy)
                self._runner.do(copy.id, lambda copy=copy, alone=alone: self._end(copy, alone), waits=True)  # type: ignore[misc]
            elif copy.stage in (Stage.SWAPPING, Stage.RETURNING):
                self._runner.do(copy.id, lambda copy=copy: self._swap(copy), waits=True)  # type: ignore[misc]
            elif copy.stage is Stage.READY and now - self._stepped.get(copy.id, 0.0) >= CHECK_SECONDS:
                self._runner.do(copy.id, lambda copy=copy: self._check(copy))  # type: ignore[misc]
            else:
                continue
            self._stepped[copy.id] = now
        self._set_off_loads(now)
        if now - self._tidied_at > TIDY_SECONDS and not self._runner.is_busy("tidy"):
            self._tidied_at = now
            self._runner.do("tidy", self._tidy)
        for gpu in list(self.recycled):
            empty = not any(gpu in copy.devices and copy.id not in self.freed for copy in self._ledger.copies())
            if empty and not self._runner.is_busy(gpu) and now - self._stepped.get(gpu, 0.0) > RESTART_SECONDS:
                self._stepped[gpu] = now
                self._runner.do(gpu, lambda gpu=gpu: self._restart_mps(gpu))  # type: ignore[misc]

    def _set_off_loads(self, now: float) -> None:
        """Looks at the adapters of ready copies beside their other steps: a load may take a minute."""
        for copy in self._ledger.copies():
            name = f"adapters {copy.id}"
            if copy.stage is Stage.READY and not self._runner.is_busy(name) and self.adapters.is_due(copy, now):
                self._runner.do(name, lambda copy=copy: self._load_adapters(copy), waits=True)  # type: ignore[misc]

    def withdraw(self, copy: NodeCopy, now: float) -> None:
        """Takes away what would start a copy again that somebody else ends."""
        name = f"withdraw {copy.id}"
        if not self._runner.is_busy(name) and now - self._stepped.get(name, 0.0) > RESTART_SECONDS:
            self._stepped[name] = now
            self._runner.do(name, lambda: self._withdraw(copy))

    def _withdraw(self, copy: NodeCopy) -> Result:
        try:
            self._drivers.runtime.withdraw(copy.id, copy.running)
        except LaunchError as error:
            log.warning("%s would be started again: %s", copy.id, error)
        return do_nothing

    def _is_alone(self, copy: NodeCopy) -> bool:
        mine = set(copy.devices)
        others = [other for other in self._ledger.copies() if mine & set(other.devices) and other.id != copy.id]
        return all(other.id in self.freed or other.id in self._stuck for other in others)

    # Steps: they run on worker threads and return what is to be recorded.

    def _start(self, copy: NodeCopy, gpu: GpuDevice) -> Result:
        try:
            filled = self._filler.fill(copy)
            context = starting.StartContext(
                copy, filled, gpu, self._filler.token(copy.id), self._filler.job_files(copy.wanted), self.adapters.load
            )
            further = starting.start_copy(context, self._drivers, self._clock())
        except CopyFailed as failure:
            reason, message = failure.reason, failure.message
            return lambda: self.fail_copy(copy, reason, message, self._clock())
        except LaunchError as error:
            put_off_for = str(error)
            return lambda: self._put_off(copy, put_off_for)
        except DeviceError as error:
            if self._clock() - copy.since > LONGEST_TROUBLE_SECONDS:
                message = str(error)
                return lambda: self.fail_copy(copy, "device_trouble", message, self._clock())
            return self._trouble(copy, error)
        return (lambda: self._advance(copy, further)) if further is not None else do_nothing

    def _end(self, copy: NodeCopy, alone: bool) -> Result:
        try:
            filled, now = self._filler.filled(copy), self._clock()
            ended = stopping.stop_copy(copy, filled, self._drivers, now, self._sent, alone)
        except LaunchError as error:
            message = str(error)
            return lambda: self._put_off(copy, message)
        except ClientStuck as stuck:
            message = str(stuck)

            def note() -> None:
                self._stuck[copy.id] = message
                self.recycle(copy.gpu, "client_stuck")

            return note
        return (lambda: self.freed.add(copy.id)) if ended else do_nothing

    def _put_off(self, copy: NodeCopy, message: str) -> None:
        """Takes the same step again a little later; says so once, for it may be for hours."""
        if self._put_off_for.get(copy.id) != message:
            log.warning(
                "the next step of %s, which is %s, failed, and is taken again: %s", copy.id, copy.stage, message
            )
            self._put_off_for[copy.id] = message
        self._stepped[copy.id] = self._clock() + RESTART_SECONDS

    def _swap(self, copy: NodeCopy) -> Result:
        """Moves a job to host memory, or back; one that does not move is ended like any other."""
        filled, now = self._filler.filled(copy), self._clock()
        try:
            if copy.stage is Stage.SWAPPING:
                moving = [other for other in self._ledger.copies() if other.stage is Stage.SWAPPING]
                before = [other for other in moving if (other.since, other.id) < (copy.since, copy.id)]
                further = swapping.swap_out(copy, filled, self._drivers, now, self._sent, before)
            else:
                further = swapping.bring_back(copy, filled, self._drivers, now, self._sent)
        except (CopyFailed, swapping.NotSwapped) as failure:
            return self._not_swapped(copy, failure, now)
        except (DeviceError, LaunchError) as error:
            if now - copy.since > swapping.limit_seconds(filled):
                return self._not_swapped(copy, CopyFailed("device_trouble", str(error)), now)
            return self._trouble(copy, error) if isinstance(error, DeviceError) else do_nothing
        return (lambda: self._advance(copy, further)) if further is not None else do_nothing

    def _not_swapped(self, copy: NodeCopy, failure: Exception, now: float) -> Result:
        if copy.stage is Stage.RETURNING and isinstance(failure, CopyFailed):
            reason, message = failure.reason, failure.message
            return lambda: self.fail_copy(copy, reason, message, now)
        log.warning("%s does not move to host memory, and is ended: %s", copy.id, failure)
        ending = copy.at(Stage.ENDING, now, swapping.NOT_SWAPPED, str(failure))
        return lambda: self._advance(copy, ending)

    def _tidy(self) -> Result:
        here = {copy.id for copy in self._ledger.copies()}  # first: what ends meanwhile is among the ended ones by then
        self._drivers.runtime.tidy(here | {ended.copy for ended in self._exits.ended})
        return do_nothing

    def _check(self, copy: NodeCopy) -> Result:
        """Checks that a ready copy answers and that its limits are in force."""
        assert copy.running is not None
        filled = self._filler.filled(copy)
        swapping.wake(copy, self._drivers)
        try:
            limited = (
                bool(copy.gpus)
                or (filled is not None and not filled.uses_gpu)
                or bool(self._drivers.runtime.pids(copy.running) & self._drivers.mps.clients(copy.gpu))
            )
        except DeviceError as error:
            return self._trouble(copy, error)
        answers = filled is None or filled.health is None or self._drivers.talk.ask(copy.listens_at, filled.health).ok
        return lambda: self._record_check(copy, limited, answers)

    def _load_adapters(self, copy: NodeCopy) -> Result:
        self.adapters.load(copy)
        return lambda: None if self._ledger.get(copy.id) else self.adapters.forget(copy.id)

    def _restart_mps(self, gpu: str) -> Result:
        try:
            self._drivers.mps.stop(gpu)
            self._drivers.mps.start(gpu)
        except DeviceError as error:
            if self._restart_errors.get(gpu) != str(error):  # tried every two seconds, logged once
                log.warning("the MPS daemon of GPU %s cannot be restarted: %s", gpu, error)
                self._restart_errors[gpu] = str(error)
            return do_nothing
        return lambda: self._record_restart(gpu)

    # Results of steps, recorded on the keeper's thread.

    def _advance(self, before: NodeCopy, after: NodeCopy) -> None:
        now = self._ledger.get(before.id)
        if now is not None and now.stage is before.stage:
            self._ledger.record(msgspec.structs.replace(after, wanted=now.wanted))
            self._stepped.pop(before.id, None)
            self._wake()
        elif now is not None and after.running is not None and now.running is None:
            # It was to be stopped before it had started: the process that was started must be stopped, too.
            self._ledger.record(msgspec.structs.replace(now, running=after.running))

    def fail_copy(self, copy: NodeCopy, reason: str, message: str, now: float) -> None:
        """Stops a copy that failed; its instance is retried after a delay."""
        current = self._ledger.get(copy.id)
        if current is None or not current.rising:
            return
        ready = now - current.since if current.stage is Stage.READY else 0.0
        try:
            over = reason == EXITED and current.wanted.job and self.note_job_exit(current) is not ExitVerdict.AGAIN
        except ExitUndecided:
            return  # the next check finds it again
        if over:
            self._ledger.record(current.at(Stage.ENDING, now, EXITED, message))
            return
        self._failures.note(current.wanted, reason, message, ready, now)
        log.warning("%s failed: %s: %s", copy.id, reason, message)
        routed = current.served and current.stage in (Stage.ROUTING, Stage.READY)
        self._ledger.record(current.at(Stage.DRAINING if routed else Stage.ENDING, now, reason, message))

    def note_job_exit(self, copy: NodeCopy) -> ExitVerdict:
        """Judges how the process of a job has ended by itself."""
        try:
            code = self._drivers.runtime.exit_code(copy.running) if copy.running is not None else None
        except LaunchError as error:
            log.warning("the exit code of %s is unknown: %s", copy.id, error)
            code = None
        verdict = self._exits.note(copy.wanted, code, self._units_of(copy))
        log.info("%s ended with exit code %s: %s", copy.id, "unknown" if code is None else code, verdict)
        return verdict

    def _trouble(self, copy: NodeCopy, error: DeviceError) -> Result:
        if error.trouble in (Trouble.FAULT, Trouble.DOWN):
            return lambda: self.recycle(copy.gpu, f"mps_{error.trouble}")
        message = str(error)
        log.warning("%s: %s", copy.id, message)
        return do_nothing

    def _record_check(self, copy: NodeCopy, limited: bool, answers: bool) -> None:
        if limited and answers:
            self._misses.pop(copy.id, None)
            return
        self._misses[copy.id] = self._misses.get(copy.id, 0) + 1
        if self._misses[copy.id] < PATIENCE_CHECKS:
            self._stepped[copy.id] = self._clock() - CHECK_SECONDS + 1.0  # check again soon
            return
        reason = "not_under_mps" if not limited else "unresponsive"
        self.fail_copy(copy, reason, f"{PATIENCE_CHECKS} checks in a row failed", self._clock())

    def _record_restart(self, gpu: str) -> None:
        log.info("the MPS daemon of GPU %s was restarted", gpu)
        self._restart_errors.pop(gpu, None)
        self.recycled.pop(gpu, None)
        for copy in self._ledger.copies():
            if copy.gpu == gpu:
                self._stuck.pop(copy.id, None)

    def keep_output(self, copy: NodeCopy) -> None:
        """Keeps what a job's process has printed; to be called before the copy is gone, or it might be tidied away."""
        if copy.wanted.job:
            self._exits.note_gone(copy.instance, copy.id)

    def forget(self, copy: NodeCopy) -> None:
        """Drops all that is known of a copy that is gone."""
        self._filler.forget(copy.id)
        self.adapters.forget(copy.id)
        self._stepped.pop(copy.id, None)
        self._stepped.pop(f"withdraw {copy.id}", None)
        self._misses.pop(copy.id, None)
        self._put_off_for.pop(copy.id, None)
        self._stuck.pop(copy.id, None)
        self._sent.forget(copy.id)
        self.freed.discard(copy.id)

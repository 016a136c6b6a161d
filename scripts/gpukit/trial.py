"""Tries every step within ten minutes, whatever one of them does, and packs what was recorded."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from agents.devices.mps.program import PROGRAM
from agents.seams.device import Ability, Device
from scripts.gpukit import archive, privacy
from scripts.gpukit.apart import Died, Overran, adopt_orphans, run_apart
from scripts.gpukit.machine import read_machine
from scripts.gpukit.page import render_recording
from scripts.gpukit.recording import Outcome, Recording, StepRecord, encode, name_file
from scripts.gpukit.stand import KitOptions, StepSkipped, StepTime, open_drivers, open_stand, put_stand_ins
from scripts.gpukit.steps import STEPS, KitStep

TOTAL_SECONDS = 600.0
CLOSING_SECONDS = 60.0  # to restore, read and pack
LEAST_SECONDS = 5.0  # a step is not begun with less
ASK_SECONDS = 20.0
ROOM_SECONDS = 5.0  # of a step's time, to end what it started


class NoGpu(Exception):
    """NVML lists no GPU; the message says why."""


@dataclass
class Trial:
    """One run of the kit on one machine."""

    folder: Path
    options: KitOptions
    program: str = PROGRAM
    began: float = field(default_factory=time.monotonic)
    is_interrupted: bool = False
    steps: dict[str, StepRecord] = field(default_factory=dict)

    def run(self, names: Collection[str]) -> Recording:
        """Raises NoGpu. A step that fails keeps none of the others away."""
        if self.options.is_stand_in:
            self.program = put_stand_ins(self.folder)
        try:
            before = run_apart(read_machine, ASK_SECONDS)
        except (Overran, Died) as error:
            raise NoGpu(f"NVML does not answer: {error}") from error
        if why := before.get("why_not"):
            raise NoGpu(why)
        print(f"{before['card']}{', a stand-in and no GPU' if self.options.is_stand_in else ''}", flush=True)
        try:
            for step in STEPS:
                if step.name in names:
                    self.try_step(step)
        except KeyboardInterrupt:  # between two steps
            self.is_interrupted = True
        try:
            after = run_apart(self._close, ASK_SECONDS)
        except (Overran, Died) as error:
            after = {"settings": {}}
            print(f"the settings cannot be read again: {error}", flush=True)
        return self._record(before, after["settings"])

    def try_step(self, step: KitStep) -> None:
        began = time.monotonic()
        left = self.began + TOTAL_SECONDS - CLOSING_SECONDS - began
        seconds = min(step.seconds, left)
        if self.is_interrupted:
            record = StepRecord("skipped", "the run was interrupted")
        elif step.changes_settings and not self.options.changes_settings:
            record = StepRecord("skipped", "it changes settings, which only --change-settings allows")
        elif left < LEAST_SECONDS:
            record = StepRecord("skipped", "the ten minutes were over")
        else:
            try:
                record = msgspec.convert(run_apart(lambda: self._run(step, began + seconds), seconds), StepRecord)
            except Overran as error:
                record = StepRecord("overran", str(error))
            except Died as error:
                record = StepRecord("failed", str(error))
            except KeyboardInterrupt:
                self.is_interrupted = True
                record = StepRecord("skipped", "it was interrupted")
        took = round(time.monotonic() - began, 1)
        self.steps[step.name] = msgspec.structs.replace(record, seconds=took)
        print(f"{step.name}: {record.outcome}{record.why and f', {record.why}'}; {took} s", flush=True)

    def _run(self, step: KitStep, ends_at: float) -> dict[str, Any]:
        """Runs a step, in its own process, and ends whatever it started."""
        step_time = StepTime(ends_at - ROOM_SECONDS)
        outcome: Outcome = "done"
        why, found = "", {}
        try:
            stand = open_stand(self.folder, self.options, self.program, step_time)
            try:
                if step.needs_mps and Ability.MPS not in stand.gpu.abilities:
                    raise StepSkipped(f"there is no MPS: it needs {PROGRAM}, and a card since Volta")
                found = step.run(stand)
            finally:
                stand.drivers.mps.stop(stand.gpu.uuid)
                self._restore_and_close(stand.drivers.device)
            if step_time.left_out:
                outcome, why = "cut short", f"there was no time for {step_time.left_out} more measurements"
        except StepSkipped as error:
            outcome, why = "skipped", str(error)
        except Exception as error:  # a GPU is seldom at hand: the steps after it are tried all the same
            outcome, why = "failed", f"{type(error).__name__}: {error}"
        return {"outcome": outcome, "why": why, "found": found}

    def _close(self) -> dict[str, Any]:
        """Restores what a step could not that was stopped, and reads the settings again."""
        self._restore_and_close(open_drivers(self.folder, self.program, self.options).device)
        return read_machine()

    def _restore_and_close(self, device: Device) -> None:
        if self.options.changes_settings:
            device.restore()
        device.close()

    def _record(self, before: dict[str, Any], settings_after: dict[str, int]) -> Recording:
        return Recording(
            at=time.strftime("%Y-%m-%d", time.gmtime()),
            seconds=round(time.monotonic() - self.began, 1),
            is_stand_in=self.options.is_stand_in,
            card=before["card"],
            driver=before["driver"],
            cuda=before["cuda"],
            architecture=platform.machine(),
            kernel="Linux " + ".".join(platform.release().split(".")[:2]),  # the rest may name who built it
            python=platform.python_version(),
            gpuwright=_version(),
            commit=os.environ.get("KIT_COMMIT", "unknown"),
            seconds_each=self.options.seconds,
            changes_settings=self.options.changes_settings,
            processes_before=before["processes"],
            settings_before=before["settings"],
            settings_after=settings_after,
            steps=self.steps,
        )


def try_everything(out: Path, options: KitOptions, names: Collection[str]) -> int:
    """Runs the steps and writes the archive; returns 1 if one failed, 2 if there is no GPU."""
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="gk-", dir="/tmp"))  # short: sockets are in it
    trial = Trial(folder, options)
    try:
        recording = trial.run(names)
    except NoGpu as error:
        print(f"gpu_kit.sh: {error}; in a clone, --stand-in tries the kit without a GPU")
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    plain = privacy.hide(msgspec.to_builtins(recording), privacy.known_names())
    recording = msgspec.convert(plain, Recording)
    _pack(out, recording)
    if trial.is_interrupted:
        return 130
    failed = [step for step in recording.steps.values() if step.outcome in ("failed", "overran")]
    return 1 if failed or recording.list_changed_settings() else 0


def _pack(out: Path, recording: Recording) -> None:
    path = out / f"gpu-kit-{name_file(recording)}-{recording.at}.tar.gz"
    files = {archive.RECORDING: encode(recording), archive.EVIDENCE: render_recording(recording).encode()}
    whole = archive.write_archive(path, files)
    done = sum(step.outcome in ("done", "cut short") for step in recording.steps.values())
    if changed := recording.list_changed_settings():
        print(f"these settings differ from before: {', '.join(changed)}")
    else:
        print("the GPU's settings are as before")
    print(f"{done} of {len(recording.steps)} steps in {recording.seconds} s")
    print(f"{path}\nSHA-256 {whole}, also in {archive.name_checksum(path).name}")
    print(f"Nothing was sent. Read it first: tar -xOzf {path.name} | less")
    print(privacy.LEFT_OUT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ends the present step, once: what is running ends in order, and settings are restored."""
    for again in (signal.SIGTERM, signal.SIGINT):
        signal.signal(again, signal.SIG_IGN)
    raise KeyboardInterrupt


def _version() -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("gpuwright")
    return "not installed"

"""Hooks that rent nodes and give them back: named by pools, described in a file that only root may write.

A manifest can name a hook and nothing else, so that a token of the API cannot have the planner's host run a program.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from app.control.rent.calls import MOST_READ_BYTES, HookCaller, HookOrder, make_plain, read_answer, show_answer
from app.control.rent.karpenter import KarpenterHook, check_karpenter
from app.control.rent.posted import WebhookEntry, make_posted_hook
from app.control.rent.states import HookAnswer, HookVerb
from app.control.rent.trusted import HooksRefused, check_program, read_trusted

MOST_PRINTED_BYTES = 1 << 24  # a program that prints more is ended, before it fills the disk
LOOK_SECONDS = 0.2  # between two looks at how much it has printed
NO_FILE = "the planner has no hooks file: set GPUWRIGHT_HOOKS_FILE on its host"
KINDS = "each name has kind script (argv), webhook (url, secretFile), karpenter (spec) or dry-run"

log = logging.getLogger(__name__)


class ScriptHook(
    msgspec.Struct, frozen=True, tag_field="kind", tag="script", forbid_unknown_fields=True, rename="camel"
):
    """Runs a program, which answers with one line of JSON."""

    argv: tuple[str, ...]
    timeout_seconds: float = 60.0

    def call(self, order: HookOrder) -> HookAnswer:
        # No pipes: a process that the program leaves behind would hold one open, and this would wait for it.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                started = subprocess.Popen(
                    self.argv, env=order.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                return HookAnswer("failed", f"{self.argv[0]} cannot be run: {error.strerror}")
            if why := _wait(started, self.timeout_seconds, (output, errors)):
                os.killpg(started.pid, signal.SIGKILL)  # what it started, too
                started.wait()
                return HookAnswer("failed", f"{self.argv[0]} {why}")
            if started.returncode:
                # Not part of the answer, which viewers read: it may hold what only root should see.
                log.warning("hook_failed", extra={"key": order.key, "errors": make_plain(_read_end(errors))})
                why = f"{self.argv[0]} ended with {started.returncode}; the planner's log has what it wrote to stderr"
                return HookAnswer("failed", why)
            return read_line(self.argv[0], order.verb, _read_end(output))


class DryRunHook(msgspec.Struct, frozen=True, tag_field="kind", tag="dry-run", forbid_unknown_fields=True):
    """Writes what it would do, and does nothing."""

    def call(self, order: HookOrder) -> HookAnswer:
        log.info("hook_dry_run", extra={"order": json.dumps(order.environment, sort_keys=True)})
        gpus, gpu_type = order.spec.get("gpus"), order.spec.get("gpuType")
        does = "rent" if order.verb == "rent" else "give back"
        return HookAnswer("tried", f"a dry run: it would {does} node {order.node} with {gpus} {gpu_type}")


HookEntry = ScriptHook | DryRunHook | WebhookEntry | KarpenterHook


@dataclass(frozen=True, slots=True)
class FileHooks:
    """The hooks of the planner's file; none without a file."""

    hooks: Mapping[str, HookCaller]
    source: str = ""

    def call(self, order: HookOrder) -> HookAnswer:
        hook = self.hooks.get(order.hook)
        if hook is None:
            known = ", ".join(sorted(self.hooks)) or "none"
            why = f"{self.source} has no hook {order.hook!r}; it has: {known}" if self.source else NO_FILE
            return HookAnswer("refused" if order.verb == "rent" else "failed", why)
        return hook.call(order)


def _wait(started: subprocess.Popen[bytes], seconds: float, files: Sequence[IO[bytes]]) -> str:
    """Waits for the end of a program; returns why it has to be ended, or nothing."""
    ends_at = time.monotonic() + seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            started.wait(max(0.0, min(LOOK_SECONDS, ends_at - time.monotonic())))
            return ""
        if sum(os.fstat(file.fileno()).st_size for file in files) > MOST_PRINTED_BYTES:
            return f"printed more than {MOST_PRINTED_BYTES >> 20} MiB"
        if time.monotonic() >= ends_at:
            return f"did not end within {seconds:g} s"


def _read_end(file: IO[bytes]) -> str:
    """Returns the end of what a program wrote: however much that is, little of it is looked at."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_READ_BYTES))
    return file.read(MOST_READ_BYTES).decode(errors="replace")


def read_line(program: str, verb: HookVerb, output: str) -> HookAnswer:
    """Returns what a script has printed, if that is one line that answers the call."""
    lines = [line for line in output.splitlines() if line.strip()]
    if len(lines) != 1:
        why = f"{program} printed {len(lines)} lines, and not one line of JSON such as {show_answer(verb)}"
        return HookAnswer("failed", why)
    return read_answer(program, verb, lines[0])


def load_hooks(path: Path | None, owner: int = 0) -> FileHooks:
    """Reads the hooks file. Raises HooksRefused unless it is a plain file of root's that only root may write."""
    if path is None:
        return FileHooks({})
    import yaml

    text = read_trusted(path, "the hooks file", owner)
    try:
        written = msgspec.convert(yaml.safe_load(text) or {}, dict[str, HookEntry])
    except yaml.MarkedYAMLError as error:  # its text quotes the line, which may hold a secret
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise HooksRefused(f"the hooks file {path} is not YAML at line {line}: {error.problem}; {KINDS}") from None
    except (yaml.YAMLError, msgspec.MsgspecError) as error:
        raise HooksRefused(f"the hooks file {path}: {error}; {KINDS}") from None
    hooks = {name: _make_hook(entry, f"hook {name} of {path}", owner) for name, entry in written.items()}
    return FileHooks(hooks, str(path))


def _make_hook(entry: HookEntry, where: str, owner: int) -> HookCaller:
    if isinstance(entry, WebhookEntry):
        return make_posted_hook(entry, where, owner)
    if isinstance(entry, KarpenterHook):
        check_karpenter(entry, where)
    if isinstance(entry, ScriptHook):
        if not (entry.argv and entry.argv[0].startswith("/") and entry.timeout_seconds > 0):
            raise HooksRefused(f"{where}: argv must begin with an absolute path, timeoutSeconds be over 0")
        check_program(Path(entry.argv[0]), where, owner)
    return entry

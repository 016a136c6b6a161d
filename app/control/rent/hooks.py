"""Hooks that rent nodes and give them back: named by pools, described in a file that only root may write.

A manifest can name a hook and nothing else, so that a token of the API cannot have the planner's host run a program.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

import msgspec

from app.control.rent.states import HookAnswer, HookVerb

LONGEST_MESSAGE = 500  # characters of a hook's message
MOST_FILE_BYTES = 1 << 20  # of the hooks file
MOST_READ_BYTES = 1 << 16  # of what a program prints
MOST_PRINTED_BYTES = 1 << 24  # a program that prints more is ended, before it fills the disk
LOOK_SECONDS = 0.2  # between two looks at how much it has printed
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NO_FILE = "the planner has no hooks file: set GPUWRIGHT_HOOKS_FILE on its host"

log = logging.getLogger(__name__)


class HooksRefused(Exception):
    """The hooks file cannot be used; the message says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class HookOrder:
    """What a hook is called for: one node, under one key however often it is called."""

    verb: HookVerb
    hook: str
    key: str
    pool: str
    node: str
    spec: Mapping[str, object]  # of the node, as it is declared

    @property
    def environment(self) -> dict[str, str]:
        """Returns what a script finds in its environment; nothing of the planner's own is passed on."""
        shown = {
            "GPUWRIGHT_GPU_TYPE": "gpuType", "GPUWRIGHT_GPUS": "gpus", "GPUWRIGHT_REGION": "region",
            "GPUWRIGHT_PURCHASE": "purchase",
        }  # fmt: skip
        named = {name: str(self.spec[field]) for name, field in shown.items() if field in self.spec}
        return named | {
            "GPUWRIGHT_VERB": self.verb, "GPUWRIGHT_KEY": self.key, "GPUWRIGHT_POOL": self.pool,
            "GPUWRIGHT_NODE": self.node, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }  # fmt: skip


class HookCaller(Protocol):
    """Calls hooks by name."""

    def call(self, order: HookOrder) -> HookAnswer: ...


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
            return read_answer(self.argv[0], order.verb, _read_end(output))


class DryRunHook(msgspec.Struct, frozen=True, tag_field="kind", tag="dry-run", forbid_unknown_fields=True):
    """Writes what it would do, and does nothing."""

    def call(self, order: HookOrder) -> HookAnswer:
        log.info("hook_dry_run", extra={"order": json.dumps(order.environment, sort_keys=True)})
        gpus, gpu_type = order.spec.get("gpus"), order.spec.get("gpuType")
        does = "rent" if order.verb == "rent" else "give back"
        return HookAnswer("tried", f"a dry run: it would {does} node {order.node} with {gpus} {gpu_type}")


HookKind = ScriptHook | DryRunHook


class _ScriptAnswer(msgspec.Struct):
    """The line that a script prints."""

    state: Literal["accepted", "refused", "returned"]
    message: str = ""


@dataclass(frozen=True, slots=True)
class FileHooks:
    """The hooks of the planner's file; none without a file."""

    hooks: Mapping[str, HookKind]
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


def make_plain(text: str) -> str:
    """Returns the text as one line without control characters, of which databases and terminals refuse or obey some."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[-LONGEST_MESSAGE:]


def read_answer(program: str, verb: HookVerb, output: str) -> HookAnswer:
    """Returns what a script has printed, if that is one line of JSON that answers the call."""
    allowed = {"rent": ("accepted", "refused"), "return": ("returned",)}[verb]
    lines = [line for line in output.splitlines() if line.strip()]
    wanted = f'one line of JSON such as {{"state": "{allowed[0]}"}}'
    if len(lines) != 1:
        return HookAnswer("failed", f"{program} printed {len(lines)} lines, and not {wanted}")
    try:
        answer = msgspec.json.decode(lines[0], type=_ScriptAnswer)
    except msgspec.MsgspecError as error:
        return HookAnswer("failed", make_plain(f"{program} did not print {wanted}: {error}"))
    if answer.state not in allowed:
        why = f"{program} answered {answer.state} when asked to {verb}; allowed: {', '.join(allowed)}"
        return HookAnswer("failed", why)
    return HookAnswer(answer.state, make_plain(answer.message))


def load_hooks(path: Path | None, owner: int = 0) -> FileHooks:
    """Reads the hooks file. Raises HooksRefused unless it is a plain file of root's that only root may write."""
    if path is None:
        return FileHooks({})
    import yaml

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HooksRefused(f"the hooks file {path} cannot be opened: {error.strerror}") from None
    parts = ((os.fstat(descriptor), f"the hooks file {path}"), (path.parent.stat(), f"its folder {path.parent}"))
    with os.fdopen(descriptor, "rb") as file:
        for facts, what in parts:
            if why := find_fault(facts, owner):
                raise HooksRefused(f"{what} {why}")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise HooksRefused(f"the hooks file {path} is not a plain file")
        text = file.read(MOST_FILE_BYTES + 1)
        if len(text) > MOST_FILE_BYTES:
            raise HooksRefused(f"the hooks file {path} is longer than {MOST_FILE_BYTES >> 20} MiB")
    try:
        written = msgspec.convert(yaml.safe_load(text) or {}, dict[str, HookKind])
    except (yaml.YAMLError, msgspec.MsgspecError) as error:
        raise HooksRefused(f"the hooks file {path}: {error}; each name has kind script (argv) or dry-run") from None
    for name, hook in written.items():
        if isinstance(hook, ScriptHook) and not (
            hook.argv and hook.argv[0].startswith("/") and hook.timeout_seconds > 0
        ):
            raise HooksRefused(
                f"hook {name} of {path}: argv must begin with an absolute path, timeoutSeconds be over 0"
            )
    return FileHooks(written, str(path))


def find_fault(facts: os.stat_result, owner: int) -> str:
    """Returns why a file or folder is not trusted; empty where it is."""
    if facts.st_uid != owner:
        return f"belongs to user {facts.st_uid}, and must belong to {'root' if owner == 0 else f'user {owner}'}"
    if facts.st_mode & OTHERS_WRITE and not (stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX):
        return f"may be written by others (mode {stat.S_IMODE(facts.st_mode):o}); run chmod go-w"
    return ""

"""Fills the node's templates for copies, or what its allow-list admits, and remembers which instances it refused."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from agents.admission.filling import NOT_ADMITTED, check_command, fill_own, fill_program, list_admitted_paths
from agents.admission.reading import AllowList
from agents.contract.assignments import SIGNALS, AssignedAdapter, AssignedInstance, JobTerms
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import CopyFailed
from agents.keeper.job_files import JobFiles, job_files
from agents.templates import Filled
from agents.templates.filling import ArgumentRefused, Builtin, fill, find_adapter
from agents.templates.reading import Template

NO_TEMPLATE = "no_template"
LONGEST_ID = 80
ANYWHERE = "0.0.0.0"  # noqa: S104  in the copy's own network
LONGEST_SAVE_SECONDS = 3600.0


class Filler:
    """The node's templates and its allow-list, as read when the agent started."""

    def __init__(
        self,
        templates: Mapping[str, Template],
        host: str,
        key: bytes = b"",
        allow_list: AllowList | None = None,
        kind: str = "process",
        checkpoints: Path | None = None,
    ) -> None:
        self._templates = templates
        self._allow_list = allow_list or AllowList()
        self._kind = kind  # of the node's runtime: process, docker or pods
        self._host = ANYWHERE if kind == "pods" else host  # a pod has an address of its own, known once it runs
        self._key = key  # of the node: from it each copy's token is derived, also by the next agent
        self._checkpoints = checkpoints  # the node's folder for the saves of jobs
        self._admitted: dict[str, AssignedInstance] = {}  # the others are judged again: a file may have been mended
        self._filled: dict[str, Filled | None] = {}

    @property
    def measuring(self) -> frozenset[str]:
        """The templates whose servers measure what is free on their GPU while they start."""
        return frozenset(name for name, template in self._templates.items() if template.form.measures_memory)

    def refused(self, wanted: Collection[AssignedInstance]) -> Mapping[str, tuple[str, str]]:
        """Returns the instances that this node refuses to start, and why."""
        found: dict[str, tuple[str, str]] = {}
        for instance in wanted:
            if self._admitted.get(instance.id) is instance:
                continue
            filled = self._fill(instance, Builtin("", ""))
            if isinstance(filled, ArgumentRefused):
                found[instance.id] = _reason_of(filled)
        self._admitted = {instance.id: instance for instance in wanted if instance.id not in found}
        return found

    def fill(self, copy: NodeCopy) -> Filled:
        """Returns the copy's filled template; raises CopyFailed if the node refuses the template or its arguments."""
        instance = copy.wanted
        batch = instance.batch
        builtin = Builtin(
            copy=copy.id,
            gpu=",".join(copy.devices),
            gpu_count=len(copy.devices),
            port=copy.port,
            metrics_port=copy.metrics_port,
            host=self._host,
            batch=max(1, int(batch.planned)) if batch else 1,
            max_batch=max(1, int(copy.largest_batch)),
            batch_timeout_ms=instance.batch_timeout_ms,
            memory_gib=instance.memory_gib,
            token=self.token(copy.id),
            key=self.token(f"argument {copy.id}"),  # no copy has a name with a space
        )
        filled = self._fill(instance, builtin)
        if isinstance(filled, ArgumentRefused):
            raise CopyFailed(*_reason_of(filled))
        return filled

    def job_files(self, instance: AssignedInstance) -> JobFiles | None:
        """Returns the files of a job; None for a service, and where the node has no folder for saves."""
        return job_files(self._checkpoints, instance) if instance.job and self._checkpoints else None

    def token(self, copy: str) -> str:
        """Returns the secret that the copy shares with this node's agent only; empty if the node has no key."""
        return hmac.new(self._key, copy.encode(), "sha256").hexdigest() if self._key else ""

    def filled(self, copy: NodeCopy) -> Filled | None:
        """Returns the filled template that the copy was started from; None if the template has changed since."""
        if copy.id not in self._filled:
            try:
                self._filled[copy.id] = self.fill(copy)
            except CopyFailed:
                self._filled[copy.id] = None
        return self._filled[copy.id]

    def paths(self, copy: NodeCopy) -> tuple[str, ...] | None:
        """Returns the paths that callers of the copy may use; None if its template has changed since it started.

        Those of a user's own runtime are in its manifest, whatever has become of its files and secrets meanwhile.
        """
        if copy.wanted.runtime is not None:
            return list_admitted_paths(copy.wanted.runtime)
        filled = self.filled(copy)
        return filled.paths if filled else None

    def find_adapter(self, copy: NodeCopy, adapter: AssignedAdapter) -> str | ArgumentRefused:
        """Returns the real path of an adapter's folder, under the folder of the copy's template."""
        return find_adapter(self._templates[copy.wanted.template], adapter.name, adapter.path)

    def forget(self, copy: str) -> None:
        self._filled.pop(copy, None)

    def _fill(self, instance: AssignedInstance, builtin: Builtin) -> Filled | ArgumentRefused:
        if len(instance.id) > LONGEST_ID:  # a copy's name is longer, and a report allows 100 characters
            return ArgumentRefused("out_of_range", "id", f"an instance's name has at most {LONGEST_ID} characters")
        if instance.runtime is not None and instance.template:
            return ArgumentRefused(
                NOT_ADMITTED, "runtime", "an instance has a template or a runtime of its own, not both"
            )
        filled = self._fill_form(instance, builtin)
        if instance.terms is None or isinstance(filled, ArgumentRefused):
            return filled
        return self._add_terms(filled, instance.terms)

    def _fill_form(self, instance: AssignedInstance, builtin: Builtin) -> Filled | ArgumentRefused:
        if instance.runtime is not None:
            if instance.adapters:
                return ArgumentRefused(NOT_ADMITTED, "adapters", "a runtime of one's own holds no LoRA adapters")
            return fill_own(self._allow_list, instance.runtime, builtin, self._kind, not instance.job)
        template = self._templates.get(instance.template)
        if template is None:
            offered = ", ".join(sorted(self._templates)) or "none"
            name = instance.template or "(none named)"
            return ArgumentRefused(NO_TEMPLATE, "template", f"this node has no template {name}; it has {offered}"[:500])
        filled = fill(template, instance.args or {}, builtin)
        if instance.adapters and isinstance(filled, Filled) and filled.adapters is None:
            return ArgumentRefused("unknown_argument", "adapters", f"template {template.name} holds no LoRA adapters")
        return filled

    def _add_terms(self, filled: Filled, terms: JobTerms) -> Filled | ArgumentRefused:
        """Returns the filled form with the way in which the job saves; a command must be admitted like any other."""
        command = terms.checkpoint_command
        if command and (not filled.confined or filled.image):
            message = "only a job that runs a command of its own may save by a command"
            return ArgumentRefused(NOT_ADMITTED, "checkpoint.command", message)
        if command:
            refused = check_command(self._allow_list, command, self._kind)
            if refused is not None:
                return refused
        if terms.checkpoint_signal and terms.checkpoint_signal not in SIGNALS:
            allowed = ", ".join(SIGNALS)
            return ArgumentRefused("out_of_range", "checkpoint.signal", f"{terms.checkpoint_signal} is not {allowed}")
        return replace(
            filled,
            checkpoint_command=fill_program(command) if command else filled.checkpoint_command,
            checkpoint_signal=terms.checkpoint_signal or filled.checkpoint_signal,
            checkpoint_seconds=min(terms.checkpoint_seconds, LONGEST_SAVE_SECONDS) or filled.checkpoint_seconds,
        )


def _reason_of(refused: ArgumentRefused) -> tuple[str, str]:
    """Returns the reason and message under which the control plane records the refusal."""
    if refused.reason == NO_TEMPLATE:
        return NO_TEMPLATE, refused.message
    if refused.reason == NOT_ADMITTED:
        return NOT_ADMITTED, f"{refused.field}: {refused.message}"
    return "refused_arguments", f"{refused.field}: {refused.message} ({refused.reason})"

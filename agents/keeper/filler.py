"""Fills the node's templates for copies, and remembers which instances it refused."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping

from agents.contract.assignments import AssignedInstance
from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import CopyFailed
from agents.templates import Filled
from agents.templates.filling import ArgumentRefused, Builtin, fill
from agents.templates.reading import Template

NO_TEMPLATE = "no_template"
LONGEST_ID = 80


class Filler:
    """The node's templates, as read when the agent started."""

    def __init__(self, templates: Mapping[str, Template], host: str, key: bytes = b"") -> None:
        self._templates = templates
        self._host = host
        self._key = key  # of the node: from it each copy's token is derived, also by the next agent
        self._judged: dict[str, tuple[AssignedInstance, tuple[str, str] | None]] = {}
        self._filled: dict[str, Filled | None] = {}

    def refused(self, wanted: Collection[AssignedInstance]) -> Mapping[str, tuple[str, str]]:
        """Returns the instances that this node refuses to start, and why."""
        found: dict[str, tuple[str, str]] = {}
        judged: dict[str, tuple[AssignedInstance, tuple[str, str] | None]] = {}
        for instance in wanted:
            known = self._judged.get(instance.id)
            if known is not None and known[0] is instance:
                why = known[1]
            else:
                filled = self._fill(instance, Builtin("", ""))
                why = _reason_of(filled) if isinstance(filled, ArgumentRefused) else None
            judged[instance.id] = (instance, why)
            if why:
                found[instance.id] = why
        self._judged = judged
        return found

    def fill(self, copy: NodeCopy) -> Filled:
        """Returns the copy's filled template; raises CopyFailed if the node refuses the template or its arguments."""
        instance = copy.wanted
        batch = instance.batch
        builtin = Builtin(
            copy=copy.id,
            gpu=copy.gpu,
            port=copy.port,
            metrics_port=copy.metrics_port,
            host=self._host,
            batch=max(1, int(batch.planned)) if batch else 1,
            max_batch=max(1, int(copy.largest_batch)),
            batch_timeout_ms=instance.batch_timeout_ms,
            memory_gib=instance.memory_gib,
            token=self.token(copy.id),
        )
        filled = self._fill(instance, builtin)
        if isinstance(filled, ArgumentRefused):
            raise CopyFailed(*_reason_of(filled))
        return filled

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

    def forget(self, copy: str) -> None:
        self._filled.pop(copy, None)

    def _fill(self, instance: AssignedInstance, builtin: Builtin) -> Filled | ArgumentRefused:
        if len(instance.id) > LONGEST_ID:  # a copy's name is longer, and a report allows 100 characters
            return ArgumentRefused("out_of_range", "id", f"an instance's name has at most {LONGEST_ID} characters")
        template = self._templates.get(instance.template)
        if template is None:
            offered = ", ".join(sorted(self._templates)) or "none"
            name = instance.template or "(none named)"
            return ArgumentRefused(NO_TEMPLATE, "template", f"this node has no template {name}; it has {offered}"[:500])
        return fill(template, instance.args or {}, builtin)


def _reason_of(refused: ArgumentRefused) -> tuple[str, str]:
    """Returns the reason and message under which the control plane records the refusal."""
    if refused.reason == NO_TEMPLATE:
        return "refused_template", refused.message
    return "refused_arguments", f"{refused.field}: {refused.message} ({refused.reason})"

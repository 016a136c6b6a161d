"""Which of the runtimes that users bring along each node admits, by the allow-list that it reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

import msgspec

from agents.contract.admitted import AdmittedEntry, find_not_admitted
from agents.contract.runtimes import OwnRuntime, own_runtime
from app.control.domain.snapshot import NodeStatus
from app.control.domain.specs import Spec, job_template
from solvers.planning.runtimes import own_job_name, own_name


def runtime_name(model: str, variant: Spec) -> str | None:
    """Returns the name by which a variant's runtime is planned; None where it has none, so that any node will do."""
    runtime = variant.get("runtime") or {}
    if "image" in runtime or "command" in runtime:
        return own_name(model, variant["name"])
    return runtime.get("template")


def encode_runtimes(models: Mapping[str, Spec]) -> dict[str, bytes]:
    """Returns the runtimes that models bring along, by name, as they travel."""
    return {
        own_name(model, variant["name"]): msgspec.json.encode(own)
        for model, spec in models.items()
        for variant in spec["variants"]
        if (own := own_runtime(variant.get("runtime"))) is not None
    }


def job_runtime_name(job: str, spec: Spec) -> str | None:
    """Returns the name by which a job's runtime is planned; None where it declares none: any node will do."""
    if own_runtime(spec.get("runtime")) is not None:
        return own_job_name(job)
    return job_template(spec) if spec.get("runtime") or "requestCount" in spec else None


def encode_job_runtimes(jobs: Mapping[str, Spec]) -> dict[str, bytes]:
    """Returns the runtimes that jobs bring along, by name, as they travel."""
    return {
        own_job_name(job): msgspec.json.encode(own)
        for job, spec in jobs.items()
        if (own := own_runtime(spec.get("runtime"))) is not None
    }


def find_offered(
    declared: frozenset[str] | None, facts: NodeStatus | None, own: Mapping[str, bytes]
) -> frozenset[str] | None:
    """Returns the names of the templates and own runtimes that a node offers, of those declared; None: all.

    A node that has reported offers no more than it said.
    """
    if facts is None or facts.templates is None:
        return declared
    reported = frozenset((*facts.templates, *list_admitted_names(own, facts.admitted)))
    return reported if declared is None else reported & declared


def declared_templates(node: Spec, own: Collection[str]) -> frozenset[str] | None:
    """Returns the templates that a node declares, and every own runtime, for its allow-list is its own; None: all."""
    templates = node.get("templates")
    return None if templates is None else frozenset((*templates, *own))


def list_admitted_names(own: Mapping[str, bytes], admitted: tuple[AdmittedEntry, ...]) -> list[str]:
    """Returns the names of the own runtimes that these entries of a node admit."""
    if not admitted or not own:
        return []
    entries = msgspec.json.encode(admitted)
    return [name for name, runtime in own.items() if _is_admitted(entries, runtime)]


@lru_cache(maxsize=10_000)
def _is_admitted(entries: bytes, own: bytes) -> bool:
    """Compares by content: nodes are many and allow-lists few, and both stay the same from cycle to cycle."""
    admitted = msgspec.json.decode(entries, type=tuple[AdmittedEntry, ...])
    return not find_not_admitted(admitted, msgspec.json.decode(own, type=OwnRuntime))

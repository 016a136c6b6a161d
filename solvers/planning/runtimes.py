"""The names under which a variant's runtime is compared with what nodes offer.

A template has its own name. A runtime of a user's own has its variant's, and a node offers it if its allow-list admits
it; so one rule (template_offered) covers both.
"""

from __future__ import annotations

from collections.abc import Collection

from solvers.planning.problem import OWN


def own_name(model: str, variant: str) -> str:
    """Returns the name of a runtime that a variant brings along."""
    return f"{OWN}{model}/{variant}"


def own_job_name(job: str) -> str:
    """Returns the name of a runtime that a job, tenant/name, brings along."""
    return f"{OWN}job {job}"


def missing_words(runtimes: Collection[str]) -> str:
    """Returns what no node does: offer one of these templates, or admit one of these runtimes."""
    own = sorted(name.removeprefix(OWN) for name in runtimes if name.startswith(OWN))
    templates = sorted(name for name in runtimes if not name.startswith(OWN))
    parts = [f"offers the template {' or '.join(templates)}"] if templates else []
    parts += [f"admits the own runtime of {' or '.join(own)}"] if own else []
    return " or ".join(parts)

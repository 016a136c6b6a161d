"""Decides whether a plan that awaits approval may still be approved: the state it was made from must still hold."""

from __future__ import annotations

from collections.abc import Iterator

from app.control.domain.snapshot import ExpectedLoad, NodeStatus, Snapshot

NOISE_SHARE = 0.05  # of a rate whose forecast gave no band


def no_longer(then: Snapshot, now: Snapshot) -> str:
    """Describes what has changed of the state a plan was made from; empty if nothing has.

    A plan depends on the plan in force, on what is declared, on which GPUs may be used, on corrections, on where copies
    failed, and on rates that stay in their bands; not on the time of day, money spent or the progress of jobs.
    """
    return "; ".join(list(_differences(then, now))[:5])


def _differences(then: Snapshot, now: Snapshot) -> Iterator[str]:
    if then.target != now.target:
        yield f"plan {now.target} is in force; it was plan {then.target}"
    before = {(manifest.kind, manifest.tenant, manifest.name): manifest.spec for manifest in then.declared}
    after = {(manifest.kind, manifest.tenant, manifest.name): manifest.spec for manifest in now.declared}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            what = "declared" if key not in before else "deleted" if key not in after else "changed"
            yield f"{key[0]} {'/'.join(filter(None, key[1:]))} was {what}"
    for node in sorted(then.nodes.keys() | now.nodes.keys()):
        if _usable(then.nodes.get(node)) != _usable(now.nodes.get(node)):
            yield f"node {node} has changed"
    if then.corrections != now.corrections:
        yield "profiles were corrected"
    for owner, places in sorted(now.failed_places.items()):
        if set(places) - set(then.failed_places.get(owner, ())):
            yield f"a copy of {owner} failed"
    for service, expected in sorted(then.expected.items()):
        rate = now.expected.get(service)
        if rate is not None and not _is_in_band(expected, rate.rate_per_second):
            yield f"{service} is expected at {rate.rate_per_second:g} requests/s; it was {expected.rate_per_second:g}"


def _usable(facts: NodeStatus | None) -> tuple[object, ...] | None:
    if facts is None:
        return None
    return (
        facts.state,
        facts.failed_gpus,
        facts.cordoned_gpus,
        facts.draining_gpus,
        facts.templates,
        facts.admitted,
    )


def _is_in_band(then: ExpectedLoad, rate: float) -> bool:
    low = min(then.low or then.rate_per_second, then.rate_per_second * (1 - NOISE_SHARE))
    high = max(then.high or then.rate_per_second, then.rate_per_second * (1 + NOISE_SHARE))
    return low <= rate <= high

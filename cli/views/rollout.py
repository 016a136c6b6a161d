"""Spells the rollout of a plan: how far it is, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from cli.output import plain, span
from solvers.planning.plan_fields import held_gpus

LINES_SHOWN = 10
UNDER_WAY = ("rolling", "paused")  # states of a plan
IN_FORCE = (*UNDER_WAY, "done", "stopped", "aborted")  # then what a gateway keeps is still followed
COUNTS = (("pending", "under way"), ("leaving", "on their way out"), ("canaries", "on trial"))
# By the furthest that a copy has come: the stages of app.control.rollout.check.
STAGES = (
    "its node has not applied it", "its node has applied it", "it is starting", "it is being verified",
    "it is warming up", "it is getting its first requests", "it is ready",
)  # fmt: skip


def rollout_lines(plan: Mapping[str, Any], now: float | None = None) -> Iterator[str]:
    """Yields the progress of a rollout, and a line for each node and change that it waits for."""
    whole = plan.get("rollout") or {}
    is_under_way = plan.get("state") in UNDER_WAY
    rollout = whole if is_under_way else {"leaving": whole.get("leaving")} if plan.get("state") in IN_FORCE else {}
    counts = [f"{len(whole[name])} {words}" for name, words in COUNTS if is_under_way and whole.get(name)]
    if counts:
        yield f"rollout: step {whole.get('steps', 0)}; instances: {', '.join(counts)}"
    lines = list(_waits(plan, rollout, time.time() if now is None else now))
    yield from map(plain, lines[:LINES_SHOWN])
    if len(lines) > LINES_SHOWN:
        yield f"and {len(lines) - LINES_SHOWN} more; --json has them all"


def _waits(plan: Mapping[str, Any], rollout: Mapping[str, Any], now: float) -> Iterator[str]:
    """Yields first the nodes that are behind, then the changes that nothing frees, then those that are under way."""
    named = {line["id"]: _spell(line) for line in (*plan.get("instances", ()), *plan.get("jobs", ())) if "id" in line}
    for node, behind in _oldest_first(rollout.get("lagging")):
        yield f"{node} has not applied its assignment for {span(max(0.0, now - behind['since']))}"
    blocked = {id_: {"since": since} for id_, since in (rollout.get("blocked") or {}).items()}
    for id_, change in _oldest_first(blocked):
        why = "nothing is under way that makes room for it"
        yield f"waiting: {named.get(id_, id_)}: {why}, for {span(max(0.0, now - change['since']))}"
    for id_, step in _oldest_first(rollout.get("pending")):
        why = "its node reports that it cannot make it" if step.get("held_since") else _stage(step)
        if step.get("waits_for"):
            yield f"waiting: {named.get(id_, id_)}: {step['waits_for']}"
        else:
            yield f"waiting: {named.get(id_, id_)}: {why}, for {span(max(0.0, now - step['since']))}"
    for id_, gone in _oldest_first(rollout.get("leaving")):
        if gone.get("waits_for"):
            owner = "/".join(gone["instance"].get(part, "") for part in ("tenant", "service"))
            line = {**gone["instance"], "id": id_, "node": gone["node"], "service": owner}
            yield f"leaving: {_spell(line)}: {gone['waits_for']}"


def _oldest_first(found: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    return sorted((found or {}).items(), key=lambda item: (item[1]["since"], item[0]))


def _stage(step: Mapping[str, Any]) -> str:
    if step.get("returns"):
        return "it was taken back, and its old copy serves"
    return STAGES[min(int(step.get("progress", 0)), len(STAGES) - 1)]


def _spell(line: Mapping[str, Any]) -> str:
    gpus = ",".join(map(str, held_gpus(line)))
    return f"{line['id']} ({line.get('service') or line.get('job')}) on {line['node']}/{gpus}"

"""What the running agent keeps, for somebody on the machine and for Prometheus."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from agents.control.agent import Agent
from agents.node.node import VERSION, LocalNode
from agents.node.state_folder import Credential

if TYPE_CHECKING:
    from agents.prometheus import AgentView


def of(agent: Agent, node: LocalNode, credential: Credential) -> dict[str, Any]:
    """Everything, as plain values."""
    body = node.report_body(*node.current_minute())
    assignment = agent.assignment
    silent = agent.silent_seconds
    return {
        "node": credential.node,
        "server": credential.server,
        "version": VERSION,
        "epoch": assignment.epoch if assignment else 0,
        "generation": assignment.generation if assignment else 0,
        "trouble": agent.trouble,
        "silentSeconds": None if silent is None else round(silent, 1),
        "gatewayAway": node.keeper.gateway_away,
        "draining": list(node.draining),
        "strangers": [running.copy for running in node.strangers],
        "gpus": msgspec.to_builtins(body.gpus),
        "faults": {
            str(index): node.watch.devices.verdicts[uuid].message
            for index, uuid in sorted(node.watch.indexes.items())
            if uuid in node.watch.devices.verdicts and node.watch.devices.verdicts[uuid].message
        },
        "copies": msgspec.to_builtins(body.copies),
        "heldBack": msgspec.to_builtins(body.held_back),
        "excursions": msgspec.to_builtins(body.excursions),
        "repartition": list(body.repartition),
    }


def text(said: Mapping[str, Any]) -> str:
    """The same, for reading."""
    silent = said["silentSeconds"]
    heard = "it has not answered yet" if silent is None else f"it answered {silent:g} s ago"
    lines = [
        f"node {said['node']}, generation {said['epoch']}.{said['generation']}; {said['server']}: {heard}",
    ]
    if said["trouble"]:
        lines.append(f"it is not heard now: {said['trouble']}")
    if said["gatewayAway"]:
        lines.append(f"the gateway does not answer: {said['gatewayAway']}")
    rows = [("GPU", "HEALTH", "POWER W", "MEMORY GIB", "CLOCK MHZ", "")]
    for gpu in said["gpus"]:
        note = " ".join(filter(None, [gpu.get("reason", ""), "fenced" if gpu.get("fenced") else ""]))
        figures = [f"{gpu.get(name, 0):.0f}" for name in ("powerMeanW", "memoryUsedGib", "smClockMhz")]
        rows.append((str(gpu["index"]), gpu.get("health", "ok"), *figures, note))
    lines += ["", *_table(rows)]
    if said["copies"]:
        rows = [("COPY", "GPU", "STAGE", "SM%", "MEMORY GIB", "ADDRESS")]
        for copy in said["copies"]:
            reason = f" ({copy['reason']})" if copy.get("reason") else ""
            share, memory = f"{copy.get('smPercent', 0):g}", f"{copy.get('memoryGib', 0):g}"
            rows.append((copy["id"], str(copy["gpu"]), copy["stage"] + reason, share, memory, copy.get("address", "")))
        lines += ["", *_table(rows)]
    if said["draining"]:
        lines.append(f"drained, and nothing is started there: {', '.join(said['draining'])}")
    for gpu, message in said["faults"].items():
        lines.append(f"GPU {gpu}: {message}")
    for held in said["heldBack"]:
        lines.append(f"held back: {held['instance']}: {held['reason']}: {held.get('message', '')}")
    for moved in said["excursions"]:
        who = moved.get("instance") or f"GPU {moved['gpu']}"
        lines.append(
            f"away from plan: {who}: {moved['knob']} {moved['value']:g} for {moved['planned']:g}: {moved['reason']}"
        )
    for name in said["strangers"]:
        lines.append(f"runs and is in no journal: {name}; `gpuwright agent adopt` takes it in")
    return "\n".join(lines)


def view(agent: Agent, node: LocalNode, credential: Credential) -> AgentView:
    """The same, as the metrics are made from."""
    from agents.prometheus import AgentView, CopyView, GpuView

    body = node.report_body(*node.current_minute())
    assignment = agent.assignment
    watch = node.watch
    gpus = [
        GpuView(
            gpu=watch.devices.found[uuid],
            reading=watch.devices.readings.get(uuid),
            last_xid=watch.devices.xids.get(uuid, 0),
            healthy=watch.devices.verdicts[uuid].health == "ok" if uuid in watch.devices.verdicts else True,
            fenced=watch.devices.verdicts[uuid].fenced if uuid in watch.devices.verdicts else False,
            cap_w=watch.knobs.caps[uuid].applied if uuid in watch.knobs.caps else None,
            locked_clock_mhz=watch.knobs.clocks[uuid].applied if uuid in watch.knobs.clocks else None,
        )
        for _, uuid in sorted(watch.indexes.items())
        if uuid in watch.devices.found
    ]
    copies = []
    for copy in node.keeper.copies():
        told = node.counters.totals.get(copy.id)
        served = told.served if told else None
        copies.append(
            CopyView(
                copy=copy.id,
                instance=copy.instance,
                gpu=copy.wanted.gpu,
                uuid=copy.gpu,
                stage=copy.stage,
                tenant=copy.wanted.tenant,
                service=copy.wanted.service,
                job=copy.wanted.job,
                sm_percent=copy.wanted.sm_percent,
                sm_count=served.sm_count if served else None,
                memory_limit_gib=copy.wanted.memory_gib,
                memory_gib=served.memory_gib if served else None,
                requests=told.counters.requests if told and copy.served else None,
                errors=told.counters.errors if told and copy.served else None,
                busy_seconds=served.busy_seconds if served else None,
                steps=served.steps if served else None,
            )
        )
    return AgentView(
        hostname=socket.gethostname(),
        agent_version=VERSION,
        epoch=assignment.epoch if assignment else 0,
        generation=assignment.generation if assignment else 0,
        converged=not body.held_back and all(copy.stage == "ready" for copy in body.copies),
        stale_assignments=agent.stale,
        silent_seconds=agent.silent_seconds,
        excursions=len(body.excursions),
        held_back=Counter(held.reason for held in body.held_back),
        handovers={"done": node.keeper.handed_over},
        gpus=gpus,
        copies=copies,
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

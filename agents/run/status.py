"""Describes the running agent, for `gpuwright agent status` and for Prometheus."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from agents.control.agent import Agent
from agents.keeper.copies import Stage
from agents.node.node import VERSION, LocalNode
from agents.node.state_folder import Credential

if TYPE_CHECKING:
    from agents.run.view import AgentView


def describe(agent: Agent, node: LocalNode, credential: Credential) -> dict[str, Any]:
    """Returns the agent's status as plain values."""
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
        "reclaimAt": node.reclaim_at.isoformat() if node.reclaim_at else None,
        "drained": node.drained,
        "clusterAway": node.cluster_away,
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


def render_text(status: Mapping[str, Any]) -> str:
    """Returns the status as text for a terminal."""
    silent = status["silentSeconds"]
    contact = "not answered yet" if silent is None else f"answered {silent:g} s ago"
    lines = [
        f"node {status['node']}, generation {status['epoch']}.{status['generation']}; {status['server']}: {contact}",
    ]
    lines += _list_troubles(status)
    rows = [("GPU", "HEALTH", "POWER W", "MEMORY GIB", "CLOCK MHZ", "")]
    for gpu in status["gpus"]:
        note = " ".join(filter(None, [gpu.get("reason", ""), "fenced" if gpu.get("fenced") else ""]))
        figures = [f"{gpu.get(name, 0):.0f}" for name in ("powerMeanW", "memoryUsedGib", "smClockMhz")]
        rows.append((str(gpu["index"]), gpu.get("health", "ok"), *figures, note))
    lines += ["", *_table(rows)]
    if status["copies"]:
        rows = [("COPY", "GPU", "STAGE", "SM%", "MEMORY GIB", "ADDRESS")]
        rows += map(_copy_row, status["copies"])
        lines += ["", *_table(rows)]
    if status["draining"]:
        lines.append(f"draining, nothing is started there: {', '.join(status['draining'])}")
    if status["reclaimAt"]:
        lines.append(f"the cloud takes this node back at {status['reclaimAt']}; everything here moves")
    if status["drained"]:
        undone = "`kubectl uncordon`, or `state=resume` of Slurm"
        lines.append(f"its cluster has drained this node; everything here moves until {undone}")
    for gpu, message in status["faults"].items():
        lines.append(f"GPU {gpu}: {message}")
    for held in status["heldBack"]:
        lines.append(f"held back: {held['instance']}: {held['reason']}: {held.get('message', '')}")
    for moved in status["excursions"]:
        who = moved.get("instance") or f"GPU {moved['gpu']}"
        value = f"{moved['knob']} is {moved['value']:g}, planned {moved['planned']:g}"
        lines.append(f"not as planned: {who}: {value}: {moved['reason']}")
    for name in status["strangers"]:
        lines.append(f"running but in no journal: {name}; `gpuwright agent adopt` adopts it")
    return "\n".join(lines)


def _list_troubles(status: Mapping[str, Any]) -> list[str]:
    """Returns who does not answer, and what that keeps from happening."""
    said = {
        "trouble": "the control plane cannot be reached now",
        "gatewayAway": "the gateway does not acknowledge routes",
        "clusterAway": "no copy starts, and no pod becomes ready or ends, before its cluster answers",
    }
    return [f"{what}: {status[name]}" for name, what in said.items() if status[name]]


def _copy_row(copy: Mapping[str, Any]) -> tuple[str, str, str, str, str, str]:
    reason = f" ({copy['reason']})" if copy.get("reason") else ""
    share, memory = f"{copy.get('smPercent', 0):g}", f"{copy.get('memoryGib', 0):g}"
    if copy["stage"] == Stage.SWAPPED:
        share = memory = "-"  # it holds nothing of its GPU
    return copy["id"], str(copy["gpu"]), copy["stage"] + reason, share, memory, copy.get("address", "")


def build_view(agent: Agent, node: LocalNode, credential: Credential) -> AgentView:
    """Returns the view from which the metrics are made."""
    from agents.run.view import AgentView, CopyView, GpuView

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
        totals = node.counters.totals.get(copy.id)
        served = totals.served if totals else None
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
                requests=totals.counters.requests if totals and copy.served else None,
                errors=totals.counters.errors if totals and copy.served else None,
                busy_seconds=served.busy_seconds if served else None,
                steps=served.steps if served else None,
            )
        )
    return AgentView(
        hostname=socket.gethostname(),
        agent_version=VERSION,
        epoch=assignment.epoch if assignment else 0,
        generation=assignment.generation if assignment else 0,
        converged=not body.held_back and all(copy.stage in (Stage.READY, Stage.SWAPPED) for copy in body.copies),
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

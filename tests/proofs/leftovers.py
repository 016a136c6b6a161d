"""What is left over, missing or unaccounted for on a node once its assignment is reached, asked of everybody but it."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise

from sqlalchemy import text

from agents.contract.assignments import AssignedInstance
from agents.devices.simulated.remote import connect
from agents.gateway.haproxy import parsing
from agents.gateway.haproxy.master_socket import HaproxyAway, WorkerGone
from agents.gateway.haproxy.parsing import HaproxyGarbled, ServerState
from agents.keeper.copies import NodeCopy, largest_batch
from agents.keeper.filler import Filler
from agents.node.adoption import instance_of
from agents.runtime import proc
from agents.seams.device import DeviceError
from agents.talk.copy_client import CopyPlace, TcpCopyClient
from agents.templates.reading import read
from app.store.database.database import Database
from tests.support.agents import AgentProcess
from tests.support.haproxy import Gateway
from tests.support.nodes import served

SM_COUNT = 80  # of the simulated GPU


def left_over(
    agent: AgentProcess, gateway: Gateway, assigned: Collection[AssignedInstance], known: Collection[str]
) -> list[str]:
    """What differs from: one copy of each instance, known to the agent, limited, routed, and nobody else."""
    device, mps = connect(agent.folder / "simulated")
    try:
        gpu = device.gpus()[0].uuid
        clients = mps.clients(gpu)
        holders = {process.pid for process in device.processes(gpu)}
    except DeviceError as error:
        return [f"the device cannot be read: {error}"]
    finally:
        device.close()
    found = {running.copy: running.pid for running in agent.runtime.find()}
    pids = set(found.values())
    faults = []
    if sorted(map(instance_of, found)) != sorted(one.id for one in assigned) or found.keys() != set(known):
        faults.append(f"copies {sorted(found)} run, and the agent knows {sorted(known)}")
    if _marked(agent) != pids:
        faults.append(f"processes {_marked(agent)} are of copies, and those are {pids}")
    if clients != pids or holders != pids:
        faults.append(f"clients of MPS {set(clients)}, on the device {holders}, copies {pids}")
    shares = {one.id: one.sm_percent for one in assigned}
    for copy, pid in found.items():
        share = shares.get(instance_of(copy))
        if share is None or proc.read_variable(pid, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") != f"{share:g}":
            faults.append(f"{copy} has not the limit {share}")
        elif _sm_count(copy, pid) != int(SM_COUNT * share / 100):
            faults.append(f"{copy} sees {_sm_count(copy, pid)} SMs at {share} %")
    servers = _servers(gateway)
    if {name for name, server in servers.items() if server.ready} != {f"node-1:{copy}" for copy in found}:
        faults.append(f"HAProxy has {servers}, and {sorted(found)} run")
    if len(servers) != len(found):
        faults.append(f"HAProxy keeps {sorted(servers)}, and {sorted(found)} run")
    return faults


def unaccounted(database: Database, running: Collection[str], ran: Collection[str]) -> list[str]:
    """Each copy is told once, from before its predecessor's end to its own, and there is no third."""
    sql = "SELECT id, instance, started_at, ended_at FROM usage_interval ORDER BY started_at, id"
    rows = database.read(lambda connection: list(connection.execute(text(sql))))
    faults = []
    if {row.id for row in rows if row.ended_at is None} != set(running):
        faults.append(f"open: {[row.id for row in rows if row.ended_at is None]}, running {sorted(running)}")
    if missing := set(ran) - {row.id for row in rows}:
        faults.append(f"never opened: {sorted(missing)}")
    for instance in {row.instance for row in rows}:
        mine = [row for row in rows if row.instance == instance]
        for before, after in pairwise(mine):
            if before.ended_at is None or before.ended_at < after.started_at:
                faults.append(f"a gap, or one that was never closed: {before} {after}")
        for before, third in zip(mine, mine[2:], strict=False):
            if before.ended_at is None or before.ended_at > third.started_at:
                faults.append(f"three at once: {before} {third}")
    return faults


def _servers(gateway: Gateway) -> dict[str, ServerState]:
    for _ in range(50):
        with suppress(HaproxyAway, WorkerGone, HaproxyGarbled):
            seen = parsing.parse_servers(gateway.ask("show servers state"))
            return {name: server for found in seen.values() for name, server in found.items() if name[:5] == "node-"}
        time.sleep(0.1)
    return {}


def _marked(agent: AgentProcess) -> set[int]:
    """Every process that was started with this node's pipe directories, whoever knows of it."""
    pipes = str(agent.folder)
    return {pid for pid in proc.own_pids(()) if proc.read_variable(pid, "CUDA_MPS_PIPE_DIRECTORY").startswith(pipes)}


def _sm_count(copy: str, pid: int) -> int | None:
    port = proc.read_variable(pid, "GPUWRIGHT_PORT")
    wanted = served(instance_of(copy))
    filled = Filler(read(), "127.0.0.1").filled(
        NodeCopy(copy, wanted, "GPU-x", port=int(port or 0), largest_batch=largest_batch(wanted))
    )
    assert filled is not None
    said = TcpCopyClient().served(CopyPlace(int(port or 0)), filled)
    return said.sm_count if said else None

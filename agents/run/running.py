"""Runs `gpuwright agent run`: opens and starts everything, and stops it in order on a signal."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from agents.control.agent import Agent
from agents.control.assignments import begin_incarnation
from agents.host.clocks import date
from agents.host.local_socket import LocalServer
from agents.host.ownership import require_own_folder
from agents.host.plaintext import plaintext_refusal
from agents.keeper.journal import JournalError
from agents.node.node import LocalNode
from agents.node.state_folder import Credential, StateFolder
from agents.run import status
from agents.run.opening import AgentOptions, open_node
from agents.runtime import LaunchError
from agents.seams.device import DeviceError
from agents.templates.reading import TemplateError

log = logging.getLogger(__name__)


class CannotRun(Exception):
    """The agent cannot run; the message says what is missing and what to do."""


def run_agent(options: AgentOptions, metrics: str) -> None:
    """Runs until SIGTERM or SIGINT. Copies on the node keep running."""
    folder = StateFolder(options.folder)
    try:
        require_own_folder(options.folder)
    except OSError as error:
        raise CannotRun(str(error)) from error
    try:
        credential = folder.credential()
    except (OSError, msgspec.MsgspecError) as error:
        raise CannotRun(f"{options.folder / 'credential.json'} cannot be read: {error}") from error
    if credential is None:
        raise CannotRun(f"no credential in {options.folder}; run `gpuwright agent join` first")
    if refusal := plaintext_refusal(credential.server):
        raise CannotRun(refusal)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        memory = begin_incarnation(folder, date())
        here = credential.pod.node if credential.pod else credential.node
        parts = open_node(replace(options, node=credential.node, cluster_node=here))
        node = LocalNode(folder, parts, memory.incarnation)
    except msgspec.MsgspecError as error:
        files = "memory.json, devices.json, health.json or energy.json"
        raise CannotRun(f"{files} in {options.folder} cannot be read ({error}); move it away") from error
    except (DeviceError, JournalError, LaunchError, TemplateError, OSError, ValueError) as error:
        raise CannotRun(f"{error}; run `gpuwright agent doctor` to see what this machine lacks") from error
    agent = Agent(folder, credential, node, memory)
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread of its own: this one may hold a lock that stopping takes.
        signal.signal(number, lambda *_: _thread.start_new_thread(agent.stop, ()))
    local = LocalServer(options.folder, _answers(agent, node, credential))
    if metrics:
        _serve_metrics(metrics, agent, node, credential)  # before anything is changed, as the address may be refused
    node.start()
    local.start()
    log.info("node %s reports to %s until stopped", credential.node, credential.server)
    agent.run()
    local.stop()
    agent.close()
    # The poll may wait for up to a minute more; its answer does not matter any more.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _answers(agent: Agent, node: LocalNode, credential: Credential) -> Mapping[str, Any]:
    return {
        "status": lambda _question: status.describe(agent, node, credential),
        "drain": lambda question: node.drain(question.get("gpus")),
        "use": lambda question: node.use(question.get("gpus")),
        "adopt": lambda question: node.adopt(bool(question.get("end"))),
    }


def _serve_metrics(address: str, agent: Agent, node: LocalNode, credential: Credential) -> None:
    from agents.http.pages import serve
    from agents.run.metrics import render

    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise CannotRun(f"--metrics {address!r} must be HOST:PORT, like 127.0.0.1:9400")
    try:
        serve((host.strip("[]"), int(port)), {"/metrics": lambda: render(status.build_view(agent, node, credential))})
    except (OSError, OverflowError) as error:
        raise CannotRun(f"--metrics {address}: {error}") from error

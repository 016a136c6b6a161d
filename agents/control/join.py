"""Joins a control plane: exchanges a one-time token, or that of a pod, for the node's own credential.

Only the agent can read the credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.fields import Moment
from agents.contract.node_names import name_node
from agents.host.ownership import require_own_folder
from agents.node.state_folder import AgentMemory, Credential, PodJoin, StateFolder
from agents.talk.link import Link, decode_answer


class _JoinAnswer(msgspec.Struct, rename="camel"):
    node: str
    token: str
    issued_at: Moment | None = None
    expires_at: Moment | None = None


def join(
    folder: StateFolder, server: str, one_time_token: str, node: str, spec: Mapping[str, Any], ca_file: str = ""
) -> Credential:
    """Describes this machine to the control plane, and keeps the credential that it returns.

    The folder is written first, so that a full disk does not waste the one-time token.
    """
    _prepare(folder)
    credential = _ask_to_join(Credential(server, node, "", ca_file), one_time_token, spec)
    _keep(folder, credential)
    return credential


def join_as_pod(folder: StateFolder, server: str, pod: PodJoin, ca_file: str = "") -> Credential:
    """Joins with the token of the pod's service account, unless the folder has this node's credential already."""
    kept = None
    with suppress(msgspec.MsgspecError):
        kept = folder.credential()
    if kept is not None and kept.pod is not None and (kept.server, kept.pod.node) == (server, pod.node):
        credential = msgspec.structs.replace(kept, ca_file=ca_file, pod=pod)
    else:
        _prepare(folder)
        credential = _ask_to_join(Credential(server, "", "", ca_file, pod=pod), _read_token(pod), pod.spec)
    _keep(folder, credential)
    return credential


def join_again(folder: StateFolder, credential: Credential) -> Credential:
    """Joins as before, where the control plane does not know the node's token any more; GPUs keep their indexes."""
    assert credential.pod is not None, "a one-time token cannot be used again"
    joined = _ask_to_join(credential, _read_token(credential.pod), credential.pod.spec)
    _keep(folder, joined)
    return joined


def _prepare(folder: StateFolder) -> None:
    require_own_folder(folder.path)
    folder.keep_memory(folder.memory())
    folder.forget_indexes()


def _keep(folder: StateFolder, credential: Credential) -> None:
    """Keeps the credential. What was assigned to this machine under another name is forgotten first."""
    memory = folder.memory()
    if memory.assignment is not None and memory.assignment.node != credential.node:
        folder.keep_memory(AgentMemory(memory.incarnation))
    folder.keep_credential(credential)


def _read_token(pod: PodJoin) -> str:
    return Path(pod.token_file).read_text().strip()


def _ask_to_join(credential: Credential, token: str, spec: Mapping[str, Any]) -> Credential:
    # A pod asks by its cluster's name for the node; the answer says what it is called here.
    node = name_node(credential.pod.node) if credential.pod else credential.node
    link = Link(credential.server, ca_file=credential.ca_file)
    try:
        body = msgspec.json.encode({"token": token, "node": node, **spec})
        answer = link.request("POST", "/api/v1/join", body)
    finally:
        link.close()
    joined = decode_answer(answer.body, _JoinAnswer)
    return msgspec.structs.replace(
        credential,
        node=joined.node,
        token=joined.token,
        issued_at=joined.issued_at,
        expires_at=joined.expires_at,
        next=None,
    )

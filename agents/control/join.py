"""Joins a control plane: exchanges a one-time token for the node's own credential, which only the agent can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agents.contract.fields import Moment
from agents.host.ownership import require_own_folder
from agents.node.state_folder import Credential, StateFolder
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
    require_own_folder(folder.path)
    folder.keep_memory(folder.memory())
    folder.forget_indexes()
    link = Link(server, ca_file=ca_file)
    try:
        body = msgspec.json.encode({"token": one_time_token, "node": node, **spec})
        answer = link.request("POST", "/api/v1/join", body)
    finally:
        link.close()
    joined = decode_answer(answer.body, _JoinAnswer)
    credential = Credential(server, joined.node, joined.token, ca_file, joined.issued_at, joined.expires_at)
    folder.keep_credential(credential)
    return credential

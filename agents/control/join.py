"""Joining: a one-time token becomes the node's own credential, kept where only the agent can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agents.contract import Moment
from agents.host.ownership import require_own_folder
from agents.node.state_folder import Credential, StateFolder
from agents.talk.link import Link, decode_answer


class _Joined(msgspec.Struct, rename="camel"):
    node: str
    token: str
    issued_at: Moment | None = None
    expires_at: Moment | None = None


def join(
    folder: StateFolder, server: str, one_time_token: str, node: str, spec: Mapping[str, Any], ca_file: str = ""
) -> Credential:
    """Tell the control plane what this machine is, and keep the credential that it answers with.

    The folder is written to before the token is spent: a token must not be lost to a full disk.
    """
    require_own_folder(folder.path)
    folder.keep_seen(folder.seen())
    link = Link(server, ca_file=ca_file)
    try:
        body = msgspec.json.encode({"token": one_time_token, "node": node, **spec})
        answer = link.request("POST", "/api/v1/join", body)
    finally:
        link.close()
    joined = decode_answer(answer.body, _Joined)
    credential = Credential(server, joined.node, joined.token, ca_file, joined.issued_at, joined.expires_at)
    folder.keep_credential(credential)
    return credential

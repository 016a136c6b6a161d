"""Rotates the node's token: the new one is on disk and in use before the old one ends.

Killed at any moment, or with any answer lost, the agent still has a valid token on disk: the control plane ends the
old token only once the new one is used, and issues another if the old one asks again.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from agents.contract.fields import Moment
from agents.node.state_folder import Credential, NextToken, StateFolder
from agents.talk.link import Link, LinkError, decode_answer


class _TokenAnswer(msgspec.Struct, rename="camel"):
    token: str
    issued_at: Moment | None = None
    expires_at: Moment | None = None


def is_due(credential: Credential, now: datetime) -> bool:
    """Returns whether half of the token's lifetime is over, or a rotation is unfinished; `now` is the server's time."""
    if credential.next is not None:
        return True
    if credential.issued_at is None or credential.expires_at is None:
        return False
    return now >= credential.issued_at + (credential.expires_at - credential.issued_at) / 2


def rotate(folder: StateFolder, link: Link) -> Credential:
    """Returns the credential to use from now on; after a LinkError nothing has changed and it can be retried.

    `link` carries the token in use. After a start, an unfinished rotation is completed before anything else is sent:
    the control plane raises an alarm if a replaced token is used after its last minute.
    """
    credential = folder.credential()
    assert credential is not None, "there is no credential to rotate"
    if credential.next is None:
        answer = link.request("POST", f"/api/v1/nodes/{credential.node}/token", b"{}")
        issued = decode_answer(answer.body, _TokenAnswer)
        next_token = NextToken(issued.token, issued.issued_at, issued.expires_at)
        credential = msgspec.structs.replace(credential, next=next_token)
        folder.keep_credential(credential)
    return _take_up(folder, credential)


def _take_up(folder: StateFolder, credential: Credential) -> Credential:
    """Uses the next token; only once the control plane has accepted it is the old one removed from disk."""
    next_token = credential.next
    assert next_token is not None
    next_link = Link(credential.server, next_token.token, credential.ca_file)
    try:
        next_link.request("GET", "/api/v1/whoami")
    except LinkError as error:
        if error.status == 401:
            # A later answer to the same request has replaced it; the old token is still valid.
            folder.keep_credential(msgspec.structs.replace(credential, next=None))
        raise
    finally:
        next_link.close()
    credential_in_use = msgspec.structs.replace(
        credential,
        token=next_token.token,
        issued_at=next_token.issued_at,
        expires_at=next_token.expires_at,
        next=None,
    )
    folder.keep_credential(credential_in_use)
    return credential_in_use

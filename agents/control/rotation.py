"""The node's token takes turns with the next one: the new one is on disk, and tried, before the old is given up.

Killed at any moment, or with any answer lost on its way, what is on disk still opens the door: the control plane
ends the old token only after the new one was used, and gives another new one to whoever asks again with the old.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from agents.contract import Moment
from agents.node.state_folder import Credential, NextToken, StateFolder
from agents.talk.link import Link, LinkError, decode_answer


class _Made(msgspec.Struct, rename="camel"):
    token: str
    issued_at: Moment | None = None
    expires_at: Moment | None = None


def is_due(credential: Credential, now: datetime) -> bool:
    """Whether the token has lived half of its time, or a turn was begun and not ended. `now` is the control plane's."""
    if credential.next is not None:
        return True
    if credential.issued_at is None or credential.expires_at is None:
        return False
    return now >= credential.issued_at + (credential.expires_at - credential.issued_at) / 2


def rotate(folder: StateFolder, link: Link) -> Credential:
    """The credential to use from now on; LinkError leaves all as it was, to be tried again later.

    `link` carries the token in use. After a start, an unfinished turn is ended before anything else is sent: a
    token that was given up ends within a minute, and is an alarm when it comes later.
    """
    credential = folder.credential()
    assert credential is not None, "there is no credential to rotate"
    if credential.next is None:
        answer = link.request("POST", f"/api/v1/nodes/{credential.node}/token", b"{}")
        made = decode_answer(answer.body, _Made)
        following = NextToken(made.token, made.issued_at, made.expires_at)
        credential = msgspec.structs.replace(credential, next=following)
        folder.keep_credential(credential)
    return _take_up(folder, credential)


def _take_up(folder: StateFolder, credential: Credential) -> Credential:
    """Use the next token; only when the control plane knows it, the old one leaves the disk."""
    following = credential.next
    assert following is not None
    fresh = Link(credential.server, following.token, credential.ca_file)
    try:
        fresh.request("GET", "/api/v1/whoami")
    except LinkError as error:
        if error.status == 401:
            # Another answer to the same question made it void; the old token is as good as it was.
            folder.keep_credential(msgspec.structs.replace(credential, next=None))
        raise
    finally:
        fresh.close()
    taken = msgspec.structs.replace(
        credential,
        token=following.token,
        issued_at=following.issued_at,
        expires_at=following.expires_at,
        next=None,
    )
    folder.keep_credential(taken)
    return taken

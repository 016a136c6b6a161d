"""Links with which the holder of a token signs a browser in to the console, once."""

from __future__ import annotations

from typing import TypedDict

from app import sessions
from app.access import AccessVerb, Noun, require
from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, NoBody, Who, answer
from app.problem import HttpProblem

router = TypedRouter(prefix="/api/v1/sign-in-links", tags=["tokens"])


class SignInLinkWire(TypedDict):
    """A link that signs a browser in once."""

    path: str
    seconds: float


@router.post("", status_code=201, summary="A link that signs a browser in to the console once, within a minute")
def create_sign_in_link(ctx: Ctx, who: Who, body: NoBody) -> Reply[SignInLinkWire]:
    """The session may read what the token may read, and ends with it."""
    require(who, Noun.SIGN_IN_LINK, AccessVerb.WRITE)
    link = sessions.link_for(ctx.database, who.id)
    if not link:
        raise HttpProblem("forbidden", "a link is for the holder of a token that may read, and not for a session")
    return answer({"path": f"/sign-in?link={link}", "seconds": sessions.LINK_SECONDS}, status=201)

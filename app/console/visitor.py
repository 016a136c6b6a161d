"""The visitor of a page: with a session, or still to sign in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.access import Principal
from app.problem import HttpProblem


class NotSignedIn(Exception):
    """This page needs a session; the visitor is led to the sign-in form and back."""


async def _visitor(request: Request) -> Principal | None:
    who: Principal | None = request.scope["state"]["principal"]
    return who


async def _read_principal(request: Request) -> Principal:
    who: Principal | None = request.scope["state"]["principal"]
    if who is None:
        raise NotSignedIn
    return who


Visitor = Annotated[Principal | None, Depends(_visitor)]
Viewer = Annotated[Principal, Depends(_read_principal)]  # each page has one; visitors without a session are sent away


def refuse_foreign(request: Request) -> None:
    """Refuses forms of other sites, so that they cannot sign anybody in or out, nor change anything.

    Over plain HTTP browsers send no Sec-Fetch-Site, but each sends the origin of a form. No form can set the Host that
    the browser asked for, nor what a proxy in front of us reports of it.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        hosts = (request.headers.get("host"), request.headers.get("x-forwarded-host"))
        is_own = origin is None or origin.partition("://")[2] in hosts
    if not is_own:
        raise HttpProblem("forbidden", "this form was sent from another site")

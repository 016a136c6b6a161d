"""The console's routes: the door, and its pages in the order of the navigation."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from app.console import door, provider_door, refusals
from app.console.pages import (
    audit,
    edit,
    events,
    fleet,
    jobs,
    logs,
    money,
    node,
    node_actions,
    plan,
    plan_actions,
    plans,
    search,
    service,
    services,
    what_if,
)

PAGES = (
    fleet, node, node_actions, services, service, plans, plan, plan_actions, money, events, audit, edit, jobs, logs,
    what_if, search,
)  # fmt: skip
ROUTERS: tuple[APIRouter, ...] = (door.router, provider_door.router, *(page.router for page in PAGES))


def install(app: FastAPI) -> None:
    """Adds the console to `app`."""
    for router in ROUTERS:
        app.include_router(router)
    refusals.install(app)

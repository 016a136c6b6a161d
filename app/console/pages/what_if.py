"""What-if: the command that gives it."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from app.console.page_answer import show
from app.console.visitor import Viewer

router = APIRouter(include_in_schema=False)


@router.get("/what-if")
def what_if_page(request: Request, who: Viewer) -> Response:
    return show(request, who, "what_if.html", datetime.now(UTC))

"""Serves the API reference at /docs: rendered here from the OpenAPI document, with nothing from elsewhere.

No token is needed, as for /openapi.json: both are the same on every server of a version, and name nothing of its fleet.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.http.answers import PAGE_HEADERS
from app.openapi.reference import read_document

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent / "templates"
STYLE = "/docs/reference.css"


@router.get("/docs")
def reference(request: Request) -> Response:
    """Every operation and schema on one page, so that a browser's own search finds all of it."""
    plain, packed = _render(request.app)
    headers = {**PAGE_HEADERS, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, 200, {**headers, "Content-Encoding": "gzip"}, "text/html; charset=utf-8")
    return Response(plain, 200, headers, "text/html; charset=utf-8")


@router.get(STYLE)
def style() -> Response:
    return Response(
        (FOLDER / "reference.css").read_bytes(), headers={"Cache-Control": "max-age=300"}, media_type="text/css"
    )


@lru_cache(maxsize=1)
def _render(app: FastAPI) -> tuple[bytes, bytes]:
    """Returns the page, plain and compressed: it is the same for everybody."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("reference.html").render(api=read_document(app.openapi()), style=STYLE).encode()
    return html, gzip.compress(html, 6)

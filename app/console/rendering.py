"""Renders templates, which escape everything, and finds the static files. Pure."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from app.console import links, wording
from app.console.frame import PageFrame
from solvers.planning.plan_fields import gpu_bound, spell_changes, spell_shortfall

HERE = Path(__file__).parent
STATIC = HERE / "static"
MEDIA = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@cache
def static(name: str) -> tuple[bytes, str]:
    """Returns a static file and its media type; KeyError for an unknown name."""
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in MEDIA}
    path = known[name]
    return path.read_bytes(), MEDIA[path.suffix]


@cache
def address(name: str) -> str:
    """Returns the address of a static file; it changes with the content, so that browsers may keep the file forever."""
    return f"/console/{name}?{sha256(static(name)[0]).hexdigest()[:12]}"


@cache
def templates() -> Environment:
    """Returns the templates: they escape everything, and an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "number": wording.number, "percent": wording.percent, "money": wording.money, "age": wording.age,
        "words": wording.words, "sentence": wording.sentence, "changes": spell_changes,
        "gpu_bound": gpu_bound, "shortfall": spell_shortfall, "time": _time, "ago": _ago,
        "service_link": links.service_link, "node_link": links.node_link, "plan_link": links.plan_link,
        "job_link": links.job_link,
    }  # fmt: skip
    made.globals |= {
        "address": address, "subject_link": links.subject_link, "audit_link": links.audit_link,
        "what_if_link": links.what_if_link,
    }  # fmt: skip
    return made


def render(template: str, /, **values: object) -> str:
    return templates().get_template(template).render(**values)


def _frame(context: Context) -> PageFrame:
    frame: PageFrame = context["frame"]
    return frame


@pass_context
def _time(context: Context, moment: datetime) -> Markup:
    """Returns the moment in the reader's time zone, with the day unless it is today's."""
    frame = _frame(context)
    local = frame.local(moment)
    text = wording.clock(local) if frame.is_today(moment) else wording.day_and_clock(local)
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), text)


@pass_context
def _ago(context: Context, moment: datetime) -> Markup:
    """Returns how long ago the moment was; the moment itself is its tooltip."""
    frame = _frame(context)
    text = wording.ahead(moment, frame.at)
    title = f"{wording.day_and_clock(frame.local(moment))} {frame.zone}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), title, text)

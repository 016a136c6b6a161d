"""Reads manifests from bodies: by media type, within limits; a refusal names every fault at once."""

from __future__ import annotations

import re
from typing import Literal

from fastapi import Request

from app.access import AccessVerb, may
from app.api.requests import context, media_type, principal
from app.manifests import json_text
from app.manifests.faults import ManifestFault, ManifestsRefused
from app.manifests.limits import API, OBJECT, PATCH, InputLimits
from app.manifests.model import JSON, Key, Manifest
from app.manifests.reader import Media, decode
from app.manifests.validate import Examined
from app.problem import HttpProblem
from app.worker.places import WorkersBusy
from app.world.consistent import dangling, foreign, invalid

FILES = "application/vnd.gpuwright.files+json"
NO_FILES = re.compile(rb'\s*\{\s*"files"\s*:\s*\[\s*\]\s*\}\s*')
MERGE_PATCH = "application/merge-patch+json"
MEDIA: dict[str, Media] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
}


def manifests(request: Request, body: bytes, *, allow_empty: bool = False) -> list[Manifest]:
    """Returns the manifests of an apply; there must be one, unless an empty list of files is allowed."""
    given = media_type(request)
    media = "files" if given == FILES else MEDIA.get(given)
    if media is None:
        raise _refuse_media(given, [*MEDIA, FILES])
    if allow_empty and media == "files" and NO_FILES.fullmatch(body):
        return []
    return _parse(request, body, media, API, None)


def manifest(request: Request, body: bytes, key: Key) -> Manifest:
    """Returns the manifest of a put; kind, tenant and name may be left out, and must agree with the path."""
    given = media_type(request)
    media = MEDIA.get(given)
    if media is None:
        raise _refuse_media(given, list(MEDIA))
    return _parse(request, body, media, OBJECT, key)[0]


def merge_patch(request: Request, body: bytes) -> dict[str, JSON]:
    """Returns the object of a JSON Merge Patch."""
    given = media_type(request)
    if given != MERGE_PATCH:
        raise _refuse_media(given, [MERGE_PATCH])
    if len(body) > PATCH.max_bytes:
        raise HttpProblem("too-large", f"a patch has at most {PATCH.max_bytes >> 10} KiB; put the whole object instead")
    try:
        patch, _ = json_text.load(decode(body, "body"), PATCH, "body")
    except ManifestsRefused as refused:
        raise _refusal(refused) from None
    if not isinstance(patch, dict):
        raise HttpProblem("invalid", "a merge patch must be a JSON object")
    return patch


def _parse(
    request: Request, body: bytes, media: Media | Literal["files"], limits: InputLimits, key: Key | None
) -> list[Manifest]:
    who = principal(request)
    tenant = key.tenant if key else who.tenant
    try:
        # All tokens of a tenant share one place in the queue.
        found = context(request).parser.parse(body, media, limits, "body", tenant or "default", key, who.party)
    except ManifestsRefused as refused:
        raise _refusal(refused) from None
    except WorkersBusy:
        detail = "other large inputs are being read; send this one again shortly"
        raise HttpProblem("unavailable", detail, headers={"Retry-After": "2"}) from None
    if found.faults:
        raise invalid(found.faults + _also_wrong(request, found))
    return found.manifests


def _also_wrong(request: Request, found: Examined) -> list[ManifestFault]:
    """Checks the documents without faults against the store, so that one answer names every fault."""
    at_fault, who = found.at_fault, principal(request)
    all_found = [*found.manifests, *found.sketches]
    if at_fault is None or not all(may(who, m.kind, AccessVerb.WRITE, m.tenant) for m in all_found):
        return []
    ctx = context(request)
    unknown = ctx.database.read(lambda connection: dangling(connection, found.manifests, found.sketches, at_fault))
    return unknown + foreign(found.manifests, ctx.settings.currency)


def _refusal(refused: ManifestsRefused) -> HttpProblem:
    if refused.too_large:
        return HttpProblem("too-large", str(refused.faults[0]), faults=refused.faults)
    return invalid(refused.faults)


def _refuse_media(given: str, allowed: list[str]) -> HttpProblem:
    media = f"{given[:60]!r}" if given else "missing"
    accept = ", ".join(allowed)
    header = "Accept-Patch" if MERGE_PATCH in allowed else "Accept-Post"
    return HttpProblem(
        "unsupported-media-type",
        f"the media type is {media}; allowed: {accept}",
        headers={header: accept},
    )

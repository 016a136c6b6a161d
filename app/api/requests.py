"""Dependencies of the routes: caller, context and body of a request; and writes that are done once per key."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query, Request
from pydantic import BaseModel
from sqlalchemy import Connection

from app.access import Principal
from app.api.replies import JSON as JSON
from app.api.replies import Reply, T
from app.context import Context
from app.manifests.faults import escape, nearest
from app.problem import HttpProblem
from app.store.world import idempotency
from app.world.declare import ANY_VERSION, NO_VERSION
from app.world.write import Actor

KEY_FORM = re.compile(r"[\x21-\x7e]{1,200}")
SALT_BYTES = 16
Message = Annotated[str, Query(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", description="Why, for the record")]
TENANTLESS_FACTOR = 50  # a token without a tenant may make so many times the changes a day of a tenant


def context(request: Request) -> Context:
    known: Context = request.app.state.context
    return known


def principal(request: Request) -> Principal:
    who: Principal = request.scope["state"]["principal"]
    return who


def actor(request: Request) -> Actor:
    who, most = principal(request), context(request).settings.tenant_changes
    most *= 1 if who.tenant else TENANTLESS_FACTOR
    return Actor(who, request.scope["state"]["request_id"], most)


def body(request: Request) -> bytes:
    """Returns the whole body, which the gate has read within its limits."""
    read: bytes = request.scope["state"]["body"]
    return read


# Dependencies are coroutines: each plain function would take a thread of the pool.


async def _context(request: Request) -> Context:
    return context(request)


async def _principal(request: Request) -> Principal:
    return principal(request)


async def _actor(request: Request) -> Actor:
    return actor(request)


async def _body(request: Request) -> bytes:
    return body(request)


async def _no_body(request: Request) -> None:
    """Refuses a body on writes that take none, rather than ignoring it."""
    if body(request):
        raise HttpProblem("bad-request", "this request takes no body")


async def known_parameters(request: Request) -> None:
    """Refuses query parameters that the route does not have: a misspelt `?dryrun=true` must not write."""
    if not request.query_params:
        return
    known = _parameter_names(request.scope["route"].dependant.query_params)
    for name in request.query_params:
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(known) or 'none'}"
            raise HttpProblem("bad-request", f"there is no parameter {escape(name)!r}; {hint}")


def _parameter_names(parameters: Iterable[Any]) -> list[str]:
    """Returns the names of query parameters, also of those that a model gathers."""
    names: list[str] = []
    for parameter in parameters:
        kind = parameter.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += [field.alias or name for name, field in kind.model_fields.items()]
        else:
            names.append(parameter.alias)
    return names


Ctx = Annotated[Context, Depends(_context)]
Who = Annotated[Principal, Depends(_principal)]
By = Annotated[Actor, Depends(_actor)]
Body = Annotated[bytes, Depends(_body)]
NoBody = Annotated[None, Depends(_no_body)]
DryRun = Annotated[bool, Query(alias="dryRun", description="Check everything, but store nothing")]


def answer(value: T, status: int = 200, headers: dict[str, str] | None = None) -> Reply[T]:
    return Reply(msgspec.json.encode(value), status, headers, JSON)


def media_type(request: Request) -> str:
    """Returns the media type of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def if_match(request: Request) -> int | None:
    """Returns the resource version that If-Match demands; None where any will do, also a new object."""
    given = request.headers.get("if-match", "").strip()
    if not given:
        return None
    if given == "*":
        return ANY_VERSION
    match = re.fullmatch(r'"(\d{1,18})"', given)
    if match is None:
        raise HttpProblem("precondition-failed", f'If-Match must be an ETag like "42", not {given[:40]!r}')
    return int(match[1])


def refuse_body(body: bytes) -> None:
    """Refuses a body that says something, of a request that takes none."""
    if re.fullmatch(rb"\s*(\{\s*\})?\s*", body) is None:
        raise HttpProblem("bad-request", "this request takes no body")


def read_expected_version(request: Request) -> int | None:
    """Returns the version that a PUT demands: by If-Match, or none at all by `If-None-Match: *`."""
    given = request.headers.get("if-none-match", "").strip()
    if not given:
        return if_match(request)
    if given != "*" or request.headers.get("if-match"):
        raise HttpProblem("precondition-failed", "a PUT takes If-None-Match: * alone, which creates and never replaces")
    return NO_VERSION


def is_known(request: Request, etag: str) -> bool:
    """Returns whether the caller has this version of the object already, by If-None-Match."""
    given = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in given or "*" in given


def write_once(
    request: Request, body: bytes, fn: Callable[[Connection], Reply[T]], *, dry_run: bool = False
) -> Reply[T]:
    """Runs a write in one transaction; under an Idempotency-Key runs it once and repeats its first answer."""
    ctx, who = context(request), principal(request)
    if dry_run:
        return ctx.database.read(fn)
    key = request.headers.get("idempotency-key")
    if key is None:
        return ctx.database.write(fn)
    if KEY_FORM.fullmatch(key) is None:
        raise HttpProblem("bad-request", "Idempotency-Key must be 1..200 visible ASCII characters")
    request_hash = hashlib.sha256(
        b"\0".join((
            request.method.encode(),
            request.url.path.encode(),
            request.url.query.encode(),
            request.headers.get("if-match", "").encode(),
            request.headers.get("if-none-match", "").encode(),
            media_type(request).encode(),
            body,
        ))
    ).digest()  # fmt: skip

    def once(connection: Connection) -> Reply[T]:
        stored = idempotency.read_answer(connection, who.id, key)
        if stored is None:
            response = fn(connection)
            headers = {k: v for k, v in response.headers.items() if k in ("etag", "location")}
            salt = secrets.token_bytes(SALT_BYTES)
            masked = salt + _mask(request, key, salt, bytes(response.body))
            first = idempotency.KeptAnswer(request_hash, response.status_code, headers, masked)
            idempotency.keep(connection, who.id, key, first, msgspec.json.encode(headers).decode())
            return response
        if stored.request_hash != request_hash:
            raise HttpProblem("invalid", "this Idempotency-Key was used for another request; choose a new one")
        replayed = {**stored.headers, "Idempotency-Replayed": "true"}
        salt, masked = stored.body[:SALT_BYTES], stored.body[SALT_BYTES:]
        return Reply(_mask(request, key, salt, masked), stored.status, replayed, JSON)

    return ctx.database.write(once, repeatable=True)


def _mask(request: Request, key: str, salt: bytes, body: bytes) -> bytes:
    """Masks an answer before it is kept, and unmasks it again: only the caller's own token yields the stream.

    The salt makes the stream new for each answer, also where a key comes again after its first answer was deleted.
    """
    # Answers to new tokens hold them, and a retry must get the same one; the database must not show it. The mask is
    # not authenticated and need not be: who can change the kept answer can change the token's row as well. No
    # dependency has a cipher, and `cryptography` would be one of 10 MB for these lines.
    token = request.headers.get("authorization", "").partition(" ")[2].strip()  # the scheme may be spelt in any case
    secret = f"gpuwright answer\0{token}\0{key}\0".encode()
    stream = hashlib.shake_256(secret + salt).digest(len(body))
    return (int.from_bytes(body) ^ int.from_bytes(stream)).to_bytes(len(body))

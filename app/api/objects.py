"""The same five routes for every kind: list, get, put, patch, delete."""

# No `from __future__ import annotations`: FastAPI reads annotations that name local dependencies.

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Reach, require
from app.api import cursors, requests, selectors
from app.api.bodies import manifest, merge_patch
from app.api.change_events import record_changes
from app.api.pages import Cursor, Limit
from app.api.replies import Reply
from app.api.requests import By, Ctx, DryRun, NoBody, Who, answer, if_match, is_known, read_expected_version, write_once
from app.api.visibility import show_object
from app.manifests.model import API_VERSION, STORED, Free, Key, Kind
from app.problem import HttpProblem
from app.store.database import versions
from app.store.world import objects
from app.store.world.objects import Selection, StoredObject
from app.world import declare

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, Path(max_length=63, pattern=DNS_LABEL)]
Tenant = Annotated[str, Query(max_length=63, description="Only this tenant's; for kinds that belong to tenants")]
Labels = Annotated[str, Query(alias="labelSelector", max_length=2000, description="a=b,c!=d,e,!f")]
Force = Annotated[bool, Query(description="Delete a node together with everything that runs there")]
Fields = Annotated[str, Query(alias="fieldSelector", max_length=2000, description="spec.model=resnet50")]


def _make_router(kind: Kind) -> APIRouter:
    """Returns the routes of one kind; objects of a tenanted kind are addressed as tenant/name."""
    routes = APIRouter(prefix=f"/api/v1/{kind.plural}", tags=[kind.plural])
    path = "/{tenant}/{name}" if kind.tenanted else "/{name}"

    async def of_tenant(tenant: Name, name: Name) -> Key:
        return Key(kind, tenant, name)

    async def cluster_wide(name: Name) -> Key:
        return Key(kind, "", name)

    key = Depends(of_tenant if kind.tenanted else cluster_wide)
    _add_list(routes, kind)
    _add_get(routes, kind, path, key)
    _add_put(routes, kind, path, key)
    _add_patch(routes, kind, path, key)
    _add_delete(routes, kind, path, key)
    return routes


def _add_list(routes: APIRouter, kind: Kind) -> None:
    @routes.get("", summary=f"List {kind.plural}", operation_id=f"list{kind}")
    def list_objects(
        ctx: Ctx,
        who: Who,
        limit: Limit = 100,
        cursor: Cursor = "",
        tenant: Tenant = "",
        labels: Labels = "",
        fields: Fields = "",
    ) -> Response:
        granted = require(who, kind, AccessVerb.READ, tenant if kind.tenanted else "")
        if tenant and not kind.tenanted:
            raise HttpProblem("bad-request", f"{kind.plural} belong to no tenant; leave out tenant")
        terms = selectors.parse(labels, fields, kind)
        selection = Selection(
            kind,
            tenant=who.tenant if granted is Reach.OWN else tenant,
            admitting=who.tenant if granted is Reach.ADMITTED else "",
            has=terms.has,
            lacks=terms.lacks,
        )
        after_tenant, after_name, first = cursors.decode(cursor, str, str, int) if cursor else ("", "", None)

        def read(connection: Connection) -> tuple[list[StoredObject], int]:
            found = objects.page(connection, selection, (after_tenant, after_name), limit + 1)
            return found, first if first is not None else versions.current(connection)["object"][0]

        found, version = ctx.database.read(read)
        last = found[limit - 1] if len(found) > limit else None
        return answer(
            {
                "apiVersion": API_VERSION,
                "kind": f"{kind}List",
                "metadata": {
                    "resourceVersion": version,
                    "next": cursors.encode(last.tenant, last.name, version) if last else None,
                },
                "items": [show_object(stored.wire(), who.tenant) for stored in found[:limit]],
            }
        )


def _add_get(routes: APIRouter, kind: Kind, path: str, depends: object) -> None:
    @routes.get(path, summary=f"Get a {kind}", operation_id=f"get{kind}")
    def get_object(request: Request, ctx: Ctx, who: Who, key: Annotated[Key, depends]) -> Response:
        granted = require(who, kind, AccessVerb.READ, key.tenant)
        stored = ctx.database.read(lambda connection: objects.get(connection, key))
        if stored is None or (granted is Reach.ADMITTED and not stored.admitting(who.tenant)):
            raise declare.missing(key)
        if is_known(request, etag := f'"{stored.resource_version}"'):
            return Response(status_code=304, headers={"ETag": etag})
        return _answer(stored, who.tenant)


def _add_put(routes: APIRouter, kind: Kind, path: str, depends: object) -> None:
    @routes.put(path, summary=f"Declare a {kind}", operation_id=f"put{kind}")
    def put_object(
        request: Request,
        ctx: Ctx,
        who: Who,
        by: By,
        key: Annotated[Key, depends],
        body: requests.Body,
        dry: DryRun = False,
    ) -> Response:
        require(who, kind, AccessVerb.WRITE, key.tenant)
        wanted, expected = manifest(request, body, key), read_expected_version(request)

        def write(connection: Connection) -> Reply[Free]:
            done = declare.declare(
                connection, by, [wanted], dry_run=dry, expected=expected, currency=ctx.settings.currency,
                most_objects=ctx.settings.tenant_objects, keeps_sets=True,
            )  # fmt: skip
            first = done.decisions[0]
            record_changes(connection, done.decisions, dry_run=dry)
            return _answer(first.object, who.tenant, 200 if first.before else 201)

        return write_once(request, body, write, dry_run=dry)


def _add_patch(routes: APIRouter, kind: Kind, path: str, depends: object) -> None:
    @routes.patch(path, summary=f"Merge into a {kind} (RFC 7396)", operation_id=f"patch{kind}")
    def patch_object(
        request: Request,
        ctx: Ctx,
        who: Who,
        by: By,
        key: Annotated[Key, depends],
        body: requests.Body,
        dry: DryRun = False,
    ) -> Response:
        require(who, kind, AccessVerb.WRITE, key.tenant)
        patch, expected = merge_patch(request, body), if_match(request)

        def write(connection: Connection) -> Reply[Free]:
            done = declare.patch(
                connection, by, key, patch, dry_run=dry, expected=expected, currency=ctx.settings.currency
            )
            record_changes(connection, done.decisions, dry_run=dry)
            return _answer(done.decisions[0].object, who.tenant)

        return write_once(request, body, write, dry_run=dry)


def _add_delete(routes: APIRouter, kind: Kind, path: str, depends: object) -> None:
    @routes.delete(path, summary=f"Delete a {kind} that nothing refers to", operation_id=f"delete{kind}")
    def delete_object(
        request: Request,
        who: Who,
        by: By,
        key: Annotated[Key, depends],
        _body: NoBody,
        dry: DryRun = False,
        force: Force = False,
    ) -> Response:
        require(who, kind, AccessVerb.WRITE, key.tenant)
        expected = if_match(request)
        if force and kind is not Kind.NODE:
            raise HttpProblem("bad-request", "only nodes are deleted by force; delete or change the referrers first")

        def write(connection: Connection) -> Reply[Free]:
            done = declare.delete(connection, by, key, dry_run=dry, expected=expected, force=force)
            record_changes(connection, done.decisions, dry_run=dry, forced=force)
            return _answer(done.decisions[0].object, who.tenant)

        return write_once(request, b"", write, dry_run=dry)


def _answer(stored: StoredObject, tenant: str, status: int = 200) -> Reply[Free]:
    headers = {"ETag": f'"{stored.resource_version}"'}
    return answer(show_object(stored.wire(), tenant), status, headers)


routers = [_make_router(kind) for kind in STORED]

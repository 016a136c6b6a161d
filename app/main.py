"""The control plane's web application, assembled; nothing is decided here."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from fastapi import Depends, FastAPI

from app.api import (
    apply,
    audit,
    events,
    health,
    logs,
    objects,
    people,
    reports,
    sign_in_links,
    slo,
    tokens,
    watch,
    webhooks,
)
from app.api.agents import cordons, endpoints, join, join_tokens, nodes, rotation
from app.api.agents.agent_bypass import AgentBypass
from app.api.agents.overreach import audit_overreach
from app.api.answers import explain, explain_places, overview, whatif
from app.api.campaigns import campaigns
from app.api.plans import plans
from app.api.requests import known_parameters
from app.api.scale import scale
from app.console import routes as console
from app.console.refusals import refusal_page
from app.context import Context
from app.control.solve.questions import import_needed
from app.housekeeping import Housekeeping
from app.http import errors, metrics
from app.http.buckets import sign_in_buckets
from app.http.currency import CurrencyHeader
from app.http.gate import Gate
from app.http.heavy_reads import HeavyReads
from app.manifests.parsing import ParserPool
from app.nodes import metrics as node_metrics
from app.nodes.traffic import NodeTraffic
from app.openapi import document
from app.openapi import page as api_reference
from app.people.provider import Provider
from app.sessions import Sessions
from app.settings import Settings
from app.store.database.database import Database
from app.store.database.notices import Notices
from app.store.database.urls import libpq_url
from app.tokens import Authenticator
from app.webhooks.hooks import read_hooks
from app.webhooks.sender import WebhookSender
from app.world.service_accounts import ReviewToken


def create_app(settings: Settings, review_token: ReviewToken | None = None) -> Gate:
    """Returns the server's application: the API behind its gate."""
    app = assemble(settings, review_token)
    context: Context = app.state.context
    authenticator = context.authenticator
    return Gate(
        HeavyReads(AgentBypass(app, context), settings),
        settings=settings,
        authenticate=authenticator.principal,
        remembered=authenticator.cached,
        admitted=context.sessions.principal,
        refusal_page=refusal_page,
    )


def assemble(settings: Settings, review_token: ReviewToken | None = None) -> FastAPI:
    """Assembles the API over the database that the settings name."""
    database = _database(settings, settings.pool_size, writers=max(1, settings.pool_size * 6 // 10))
    reserved = _database(settings, settings.reserved_pool_size)
    listen_url = settings.database_listen_url or settings.database_url
    notices = Notices(libpq_url(listen_url), listen=settings.database_direct or bool(settings.database_listen_url))
    authenticator = Authenticator(reserved, alarmed=node_metrics.NODE_TOKEN_REUSE.inc)
    context = Context(
        settings=settings,
        database=database,
        reserved=reserved,
        notices=notices,
        authenticator=authenticator,
        sessions=Sessions(database, authenticator, sign_in_buckets(settings.sign_ins_per_hour)),
        parser=ParserPool(seconds=settings.parse_seconds, memory_mb=settings.parse_memory_mb),
        nodes=NodeTraffic(settings, reserved, notices, authenticator),
        hooks=read_hooks(settings.webhooks_file),
        provider=Provider(settings) if settings.oidc_issuer else None,
        review_token=review_token,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        housekeeping = Housekeeping(context)
        sender = WebhookSender(context.reserved, context.hooks, settings.public_url)
        context.notices.on_change("token", lambda _version: context.authenticator.changed())
        context.notices.start()
        context.nodes.start()
        housekeeping.start()
        sender.start()
        _ready_answers(context)
        yield
        housekeeping.stop()
        sender.stop()
        await context.nodes.stop()
        context.notices.stop()
        context.parser.close()
        context.desk.close()
        database.close()
        reserved.close()

    app = FastAPI(
        title="gpuwright",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=document.name_operation,
    )
    app.state.context = context
    _watch_pools(database, reserved)
    _route(app)
    app.add_middleware(CurrencyHeader, currency=settings.currency)
    errors.install(app)
    console.install(app)
    document.install(app)
    return app


def _route(app: FastAPI) -> None:
    for router in (
        *objects.routers,
        *(
            m.router
            for m in (
                apply,
                watch,
                tokens,
                join,
                join_tokens,
                rotation,
                nodes,
                endpoints,
                audit,
                sign_in_links,
                people,
                webhooks,
            )
        ),
        *(
            m.router
            for m in (
                plans,
                explain,
                explain_places,
                whatif,
                cordons,
                campaigns,
                logs,
                events,
                slo,
                overview,
                reports,
                scale,
            )
        ),
    ):
        app.include_router(router, dependencies=[Depends(known_parameters), Depends(audit_overreach)])
    app.include_router(health.router)
    app.include_router(api_reference.router)


def _watch_pools(database: Database, reserved: Database) -> None:
    for gauge, used in ((metrics.POOL, database), (metrics.RESERVED_POOL, reserved)):
        pool = used.engine.pool
        metrics.watch_pool(gauge, pool.size, pool.checkedout)  # type: ignore[attr-defined]


def _ready_answers(context: Context) -> None:
    """Starts the process that answers explain and what-if, if solvers are installed, and loads what asking needs."""
    if context.settings.answers_ready and find_spec("numba"):
        context.desk.start()
        threading.Thread(target=import_needed, name="ready answers", daemon=True).start()


def _database(settings: Settings, pool_size: int, writers: int = 0) -> Database:
    return Database(
        settings.database_url,
        pool_size=pool_size,
        writers=writers,
        direct=settings.database_direct,
        slow_query_ms=settings.slow_query_ms,
    )

"""The parts of a running server: settings, database, notices, tokens, parser. Built once, in app.main."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.control.solve.questions import QuestionProcess
from app.control.tell.window_cache import WindowCache
from app.manifests.parsing import ParserPool
from app.nodes.traffic import NodeTraffic
from app.people.provider import Provider
from app.sessions import Sessions
from app.settings import Settings
from app.store.database.database import Database
from app.store.database.notices import Notices
from app.tokens import Authenticator
from app.webhooks.hooks import Webhook
from app.world.service_accounts import ReviewToken


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of the server; routes get them as `request.app.state.context`."""

    settings: Settings
    database: Database  # for requests
    reserved: Database  # for reports, polls, tokens and housekeeping: requests take none of its connections
    notices: Notices
    authenticator: Authenticator
    parser: ParserPool
    nodes: NodeTraffic
    sessions: Sessions
    hooks: Sequence[Webhook] = ()
    provider: Provider | None = None  # where people sign in, if anywhere
    review_token: ReviewToken | None = None  # asks Kubernetes whose a token is, where agents run as pods
    windows: WindowCache = field(default_factory=WindowCache)
    desk: QuestionProcess = field(default_factory=QuestionProcess)

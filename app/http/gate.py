"""The outermost layer of the API: no request that is too large, too slow, too frequent or anonymous reaches a route."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from starlette.types import ASGIApp, Receive, Scope, Send

from app.access import AccessVerb, Noun, Principal, reach
from app.http import cookies, metrics
from app.http.answers import RefusalPage
from app.http.bodies import Disconnected, HeldBody, replay
from app.http.buckets import Buckets, sign_in_buckets, too_many
from app.http.callers import Authenticate, Callers, Remembered, peer_of
from app.http.capacity import Capacity
from app.http.errors import problem_of, unavailable
from app.http.head import Head, check_head
from app.http.lanes import KIB, METRICS, RETURN, SIGN_IN, RequestLane, lane_of_scope
from app.http.logs import REQUEST_ID
from app.http.shares import FairShares, Slots
from app.http.tracing import configure
from app.http.unsent import UnsentAnswers
from app.http.visit import Visit, route_of
from app.problem import HttpProblem
from app.settings import Settings

SIGN_INS_OF_AN_ADDRESS = 10  # times those of a token: an office shares an address
SLOW_BODY_SECONDS = 0.5
SMALL_BODY = 64 * KIB  # after refusing no more than this, reading on is cheaper than a new connection


class Gate:
    """Wraps the whole application from outside: `Gate(app, settings=..., authenticate=..., remembered=...)`.

    A route finds in `scope["state"]`: `principal`, `body` (all of it) and `request_id`. `authenticate` may
    block (it runs in a thread); `remembered` must not, and answers None for a token it has to look up. `admitted`
    does for the cookies of pages what `authenticate` does for tokens; a cookie is looked at nowhere else. A browser
    gets a refusal as `refusal_page` makes it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        authenticate: Authenticate,
        remembered: Remembered = lambda header: None,
        admitted: Authenticate | None,
        refusal_page: RefusalPage | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        limits = capacity or Capacity()
        self._app = app
        self._refusal_page = refusal_page
        self._settings = settings
        self._capacity = limits
        self._proxies = settings.proxies()
        failures = Buckets(limits.peer_failures_per_second, limits.peer_failures_burst)
        self._callers = Callers(authenticate, remembered, failures)
        self._visitors = Callers(admitted or authenticate, lambda cookie: None, failures)
        self._requests = Buckets(settings.rate_per_second, settings.rate_burst)
        report_rate = settings.report_rate_per_second
        self._reports = Buckets(report_rate, max(10.0, 3 * report_rate))
        self._anonymous = Buckets(limits.peer_per_second, limits.peer_burst)
        self._sign_ins = sign_in_buckets(SIGN_INS_OF_AN_ADDRESS * settings.sign_ins_per_hour)
        self._bodies = FairShares(limits.body_bytes, limits.body_bytes_each)
        self._node_bodies = FairShares(limits.node_body_bytes, limits.node_body_bytes_each)
        self._anonymous_bodies = FairShares(limits.anonymous_body_bytes, limits.anonymous_body_bytes_each)
        self._anonymous_open = FairShares(limits.anonymous_bodies, limits.anonymous_bodies_each)
        self._unsent = UnsentAnswers(limits.unsent_bytes, limits.unsent_bytes_each)
        self._anonymous_unsent = UnsentAnswers(limits.anonymous_unsent_bytes, limits.anonymous_unsent_bytes_each)
        self._working = Slots(limits.working, limits.working_each, limits.queue)
        self._heavy = Slots(limits.heavy, limits.heavy_each, limits.queue)
        self._asking = Slots(limits.asking, limits.asking_each, limits.queue)
        self._long = FairShares(limits.long, limits.long_each)
        self._long_tasks: set[asyncio.Task[object]] = set()
        self._draining = False
        self._tracing = configure(settings)
        metrics.BODY_BYTES.set_function(lambda: self._bodies.used)
        metrics.UNSENT_BYTES.set_function(lambda: self._unsent.used)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                self._callers.close()
                self._visitors.close()
                if self._tracing:
                    self._tracing.close()
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        head = Head(scope)
        peer = peer_of(scope.get("client"), head.forwarded, self._proxies)
        visit = Visit(scope, send, lane_of_scope(scope), head.request_id, peer, self._refusal_page)
        scope.setdefault("state", {})["request_id"] = visit.request_id
        if self._settings.public_url.startswith("https:"):
            scope["state"]["is_public_tls"] = True
        REQUEST_ID.set(visit.request_id)
        metrics.IN_FLIGHT.inc()
        try:
            if self._tracing:
                with self._tracing.span(visit, head.traceparent):
                    await self._pass(visit, head, receive)
            else:
                await self._pass(visit, head, receive)
        finally:
            metrics.IN_FLIGHT.dec()
            visit.close()

    def drain(self) -> None:
        """Ends every watch and long poll, as the server is shutting down."""
        self._draining = True
        for task in self._long_tasks:
            task.cancel()

    async def _pass(self, visit: Visit, head: Head, receive: Receive) -> None:
        try:
            await self._admit(visit, head, receive)
        except Disconnected:
            return
        except asyncio.CancelledError:
            if not self._draining:
                raise
            await self._part(visit)
        except Exception as error:
            await self._fail(visit, head, error)

    async def _admit(self, visit: Visit, head: Head, receive: Receive) -> None:
        check_head(visit.scope, head)
        lane = visit.lane
        principal = None
        if lane.page:
            principal = await self._visitor(visit)
            visit.scope["state"]["principal"] = principal
        elif not lane.anonymous and not (lane is METRICS and self._settings.open_metrics):
            principal = await self._callers.principal(head.authorization, visit.peer)
            visit.scope["state"]["principal"] = principal
        if principal is None:
            holder = visit.peer
            self._limit_address(visit)
            ledger = self._anonymous_bodies
        else:
            visit.principal_id, holder = principal.id, principal.account
            own_lane = lane.node and bool(principal.node or principal.gateway)
            self._limit(principal, lane, own_lane)
            ledger = self._node_bodies if own_lane else self._bodies
        body = HeldBody(ledger, holder)
        try:
            if head.has_body:
                began = time.monotonic()
                await self._read(body, head, lane, "" if principal else holder, receive)
                if principal and time.monotonic() - began > SLOW_BODY_SECONDS:
                    await self._check_again(visit, head)
                receive = replay(body.data, receive)
            visit.scope["state"]["body"] = body.data
            await self._enter(visit, holder, receive)
        finally:
            body.release()
            # A closed connection holds its last request until the next garbage collection; not its body, too.
            visit.scope["state"].pop("body", None)
        if lane.guarded and visit.status in (401, 403, 404, 409):
            self._callers.failed(visit.peer)
        await self._deliver(visit, holder, self._unsent if principal else self._anonymous_unsent)

    async def _read(self, body: HeldBody, head: Head, lane: RequestLane, address: str, receive: Receive) -> None:
        """Reads the body; for an address without a token only so many at a time."""
        if address and not self._anonymous_open.take(address, 1):
            raise body.busy()
        try:
            await body.read(receive, head.length, lane.body_limit, self._settings.body_seconds)
        finally:
            if address:
                self._anonymous_open.give(address, 1)

    async def _check_again(self, visit: Visit, head: Head) -> None:
        """Looks whether the token or the session has ended while the body trickled in."""
        if visit.lane.page:
            visit.scope["state"]["principal"] = await self._visitor(visit)
        else:
            await self._callers.principal(head.authorization, visit.peer)

    async def _visitor(self, visit: Visit) -> Principal | None:
        """Returns the principal of a page's session; None without a session: the page then shows the sign-in form."""
        cookie = cookies.session_of(visit.scope)
        if cookie is None or visit.lane.anonymous:
            return None
        try:
            return await self._visitors.principal(cookie, visit.peer)
        except HttpProblem as problem:
            if problem.status != 401:
                raise
            return None

    def _limit_address(self, visit: Visit) -> None:
        """Refuses requests without a token that an address sends too fast."""
        peer, now = visit.peer, time.monotonic()
        wait = self._anonymous.take(peer, now)
        if wait:
            raise too_many("requests without a token from this address", wait, self._anonymous)
        if visit.lane is SIGN_IN and (visit.method == "POST" or visit.scope["path"] == RETURN):
            wait = self._sign_ins.take(peer, now)
            if wait:
                raise too_many("sign-ins from this address", wait, self._sign_ins)
        if visit.lane.guarded:
            self._callers.check(peer)

    def _limit(self, principal: Principal, lane: RequestLane, own_lane: bool) -> None:
        buckets = self._reports if own_lane else self._requests
        wait = buckets.take(principal.account, time.monotonic())
        if wait:
            raise too_many("requests with this token", wait, buckets)
        if lane is METRICS and reach(principal, Noun.METRICS, AccessVerb.READ) is None:
            raise HttpProblem("forbidden", f"a token of scope {principal.role} may not read metrics")

    async def _enter(self, visit: Visit, holder: str, receive: Receive) -> None:
        """Waits for a place, then lets the application answer."""
        lane = visit.lane
        if lane.long:
            await self._stay(visit, holder, receive)
        elif lane.node or lane.anonymous:
            await self._run(visit, receive)  # never behind the queue of other requests
        elif lane.heavy or lane.asks:
            few = self._heavy if lane.heavy else self._asking
            async with self._place(few, holder), self._place(self._working, holder):
                await self._run(visit, receive)
        else:
            async with self._place(self._working, holder):
                await self._run(visit, receive)

    @contextlib.asynccontextmanager
    async def _place(self, slots: Slots, holder: str) -> AsyncIterator[None]:
        if not slots.try_take(holder) and not await slots.take(holder, self._capacity.queue_seconds):
            raise unavailable("the server already works on as many requests as it may; send this request again shortly")
        try:
            yield
        finally:
            slots.give(holder)

    async def _stay(self, visit: Visit, holder: str, receive: Receive) -> None:
        if self._draining:
            raise unavailable("the server is shutting down")
        if not self._long.take(holder, 1):
            raise unavailable("too many watches or long polls are open")
        task = asyncio.current_task()
        assert task is not None
        self._long_tasks.add(task)
        gauge = metrics.OPEN_LONG.labels(visit.lane.name)
        gauge.inc()
        try:
            await self._run(visit, receive)
        finally:
            gauge.dec()
            self._long_tasks.discard(task)
            self._long.give(holder, 1)

    async def _run(self, visit: Visit, receive: Receive) -> None:
        try:
            await self._app(visit.scope, receive, visit.send)
        except Exception:
            if not visit.ended:  # else it was answered by the error handlers, which raise again
                raise
        finally:
            visit.route = route_of(visit.scope)

    async def _deliver(self, visit: Visit, holder: str, unsent: UnsentAnswers) -> None:
        """Sends the answer when its place and body are given back; ends it when its caller leaves too much unread."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as deadline:
                with unsent.hold(holder, visit.unsent(), lambda: deadline.reschedule(0.0)) as note_sent:
                    await visit.deliver(note_sent)

    async def _part(self, visit: Visit) -> None:
        """Answers a request that the shutdown cut short."""
        if not visit.started:
            await visit.refuse(unavailable("the server is shutting down"), close=True)
        elif not visit.ended:
            with contextlib.suppress(Exception):  # a fixed length was promised: the connection just ends
                await visit.send({"type": "http.response.body", "body": b""})

    async def _fail(self, visit: Visit, head: Head, error: Exception) -> None:
        problem = problem_of(error)
        if visit.started:
            return  # the server cuts the connection, so that the client does not take half of the answer for all of it
        is_unread = head.has_body and (head.length is None or head.length > SMALL_BODY or problem.status == 408)
        await visit.refuse(problem, close=is_unread)

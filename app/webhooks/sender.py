"""Sends what is due, a thread for each webhook: one that hangs delays no other.

A delivery is tried again after 10 seconds, and each time after twice as long. After twelve tries, some three hours, an
alarm says so. An event is then a dead letter, which an admin can send again. So is an entry of the audit that the place
refuses for what it says while it takes others; any other is tried every hour.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection

from app.control.domain.events import Reason, event_of
from app.http.posting import NotDelivered, post
from app.store.database.database import Database, Unavailable
from app.store.world import audit, events, webhooks
from app.store.world.webhooks import Delivery, HookFilter
from app.webhooks.bodies import (
    StreamedMessage,
    describe_entry,
    describe_event,
    make_request,
    spell_json_line,
    spell_syslog,
)
from app.webhooks.hooks import Webhook
from app.webhooks.writing import write

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # between two looks where nothing is due
REGISTER_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 3600.0
MOST_TRIES = 12
LATE_SECONDS = 3 * 3600.0
STOP_SECONDS = 15.0  # longer than a post takes
MOST_REST_SECONDS = 30.0  # of a hook that fails, before its next delivery


class WebhookSender:
    """Sends events and the audit to the listed places until it is stopped."""

    def __init__(self, database: Database, hooks: Sequence[Webhook], source: str) -> None:
        self._database = database
        self._hooks = hooks
        self._source = source.rstrip("/")
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        if self._hooks:
            self._run("webhooks", self._register)
        for hook in self._hooks:
            self._run(f"webhook {hook.name}", partial(self._send_due, hook))

    def stop(self) -> None:
        """Waits for the posts on their way, each of which has an end in sight."""
        self._over.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _register(self) -> None:
        """Says again and again that these hooks are there, so that events are kept for them."""
        wanted = [
            HookFilter(hook.name, hook.stream == "audit", hook.severities, hook.reasons, hook.tenants)
            for hook in self._hooks
        ]
        while True:
            done = self._guard(lambda: self._database.write(lambda c: webhooks.register(c, wanted)) is None)
            if self._over.wait(REGISTER_SECONDS if done else LOOK_SECONDS):
                return

    def _send_due(self, hook: Webhook) -> None:
        rest = 0.0
        while not self._over.wait(rest):
            match self._guard(partial(self._send_next, hook)):
                case True:
                    rest = 0.0
                case False:
                    rest = min(MOST_REST_SECONDS, 2 * rest or 1.0)
                case _:
                    rest = LOOK_SECONDS

    def _send_next(self, hook: Webhook) -> bool | None:
        """Returns whether the next delivery arrived; None if none is due."""
        delivery = self._database.write(lambda connection: webhooks.claim(connection, hook.name))
        if delivery is None:
            return None
        message = self._describe(delivery)
        try:
            self._deliver(hook, message)
        except NotDelivered as failed:
            self._note_failed(hook, delivery, message, failed)
            return False
        self._database.write(lambda connection: webhooks.note_delivered(connection, delivery))
        return True

    def _describe(self, delivery: Delivery) -> StreamedMessage:
        number = delivery.event.get("audit")
        if number is None:
            return describe_event(delivery.id, delivery.event)
        entry = self._database.read(lambda connection: audit.get(connection, number))
        assert entry is not None, "entries outlive their deliveries"
        return describe_entry(entry)

    def _deliver(self, hook: Webhook, message: StreamedMessage) -> None:
        match hook.form:
            case "jsonl":
                write(hook, spell_json_line(message))
            case "syslog":
                write(hook, spell_syslog(message, socket.gethostname()))
            case _:
                post(hook, *make_request(hook, message, self._source, int(time.time())))

    def _note_failed(self, hook: Webhook, delivery: Delivery, message: StreamedMessage, why: NotDelivered) -> None:
        # While a place is away, all that waits is tried before anything is tried again: what is old is late as well.
        is_late = delivery.attempts >= MOST_TRIES or delivery.age_seconds >= LATE_SECONDS
        is_dead = delivery.attempts >= MOST_TRIES and (hook.stream == "events" or why.is_refused)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(delivery.attempts - 1, MOST_TRIES))
        what = f"{message.word} of {message.subject}"
        words = f"webhook {hook.name} did not get {what} in {delivery.attempts} tries: {why}"
        alarm = event_of(Reason.WEBHOOK_FAILED, words, kind="Webhook", name=hook.name)
        log.warning("webhook %s: delivery %d, try %d: %s", hook.name, delivery.id, delivery.attempts, why)

        def note(connection: Connection) -> None:
            webhooks.note_failed(connection, delivery, str(why), pause, is_dead)
            if is_late:
                events.record(connection, [alarm])

        self._database.write(note)

    @staticmethod
    def _guard(work: Callable[[], bool | None]) -> bool | None:
        """Returns what the work returns; None after an error, so that its thread waits and goes on."""
        try:
            return work()
        except Unavailable as error:
            log.warning("webhooks wait for the database: %s", error)
        except Exception:
            log.exception("a webhook's thread goes on after an error")
        return None

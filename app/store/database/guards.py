"""Time limits of statements, set for a session, or for a transaction where a pooler lends sessions to many."""

from __future__ import annotations

STATEMENT_MS = 30_000
LOCK_MS = 10_000
IDLE_IN_TRANSACTION_MS = 15_000  # a stalled writer must not block the others for longer

OF_SESSION = (
    f"SET statement_timeout = {STATEMENT_MS}; SET lock_timeout = {LOCK_MS}; "
    f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}"
)
OF_TRANSACTION = (
    f"SELECT set_config('statement_timeout', '{STATEMENT_MS}', true), "
    f"set_config('lock_timeout', '{LOCK_MS}', true), "
    f"set_config('idle_in_transaction_session_timeout', '{IDLE_IN_TRANSACTION_MS}', true)"
)

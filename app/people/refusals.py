"""Refusals of a sign-in, in words that a person can act on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.people.claims import ClaimRefused
from app.people.provider import ProviderBusy, ProviderFailed
from app.problem import HttpProblem

log = logging.getLogger(__name__)
RETRY = {"Retry-After": "5"}


@contextmanager
def refuse() -> Iterator[None]:
    """Turns what goes wrong with the provider into refusals. Strangers do not read what it answered; the log has it."""
    try:
        yield
    except ClaimRefused as refused:
        raise HttpProblem("unauthorized", str(refused)) from None
    except ProviderBusy:
        detail = "too many people sign in at once; try again in a moment"
        raise HttpProblem("unavailable", detail, headers=RETRY) from None
    except ProviderFailed as failed:
        log.warning("a sign-in failed: %s", failed)
        detail = "the provider did not answer as it should; the server's log says how"
        raise HttpProblem("unavailable", detail, headers=RETRY) from None

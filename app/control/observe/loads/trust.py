"""Which instances a node may speak of: those that it was told to run, and for a while those that it was.

A node that speaks of what it was never told has another mind, or another master: it shall not say what is asked of
somebody else's service, nor how far somebody else's job is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from agents.contract import Assignment
from app.control.observe.loads.reports import ReportExcerpt

KEPT = timedelta(minutes=10)  # that what has left is spoken of: the minute it left in, and a report that was late

Owner: TypeAlias = tuple[str, str, str]  # tenant, service, job

log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Assignment)


class TrustedInstances:
    """What nodes were told, as far as `version`."""

    def __init__(self) -> None:
        self.version = 0
        self._told: dict[str, Mapping[str, Owner]] = {}
        self._left: dict[str, Mapping[str, tuple[Owner, datetime]]] = {}
        self._strange: dict[str, int] = {}

    def take(self, told: Iterable[tuple[str, int, str]], now: datetime) -> None:
        """Assignments that were written since: node, version, body."""
        for node, version, body in told:
            wanted = {one.id: (one.tenant, one.service, one.job) for one in _decoder.decode(body).instances}
            left = {id_: one for id_, one in self._left.get(node, {}).items() if one[1] > now - KEPT}
            left |= {id_: (owner, now) for id_, owner in self._told.get(node, {}).items() if id_ not in wanted}
            self._told[node], self._left[node] = wanted, left
            self.version = max(self.version, version)

    def of(self, word: ReportExcerpt) -> ReportExcerpt:
        """The word without what its node may not speak of."""
        known = {id_: owner for id_, (owner, _) in self._left.get(word.node, {}).items()}
        known |= self._told.get(word.node, {})
        instances = tuple(one for one in word.instances if known.get(one.id) == (one.tenant, one.service, one.job))
        strange = len(word.instances) - len(instances)
        if strange != self._strange.get(word.node, 0):
            self._strange[word.node] = strange
            log.warning("not_believed", extra={"node": word.node, "instances": strange})
        held_back = tuple(one for one in word.held_back if one.instance in known)
        if not strange and len(held_back) == len(word.held_back):
            return word
        return msgspec.structs.replace(word, instances=instances, held_back=held_back)

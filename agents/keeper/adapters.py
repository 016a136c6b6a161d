"""Loads and unloads LoRA adapters of running copies, until each copy reports those that are assigned to it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from agents.contract.assignments import AssignedAdapter
from agents.contract.fields import ADAPTER_NOT_LOADED
from agents.contract.fits import Shortfall
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.decide import HeldStart
from agents.keeper.filler import Filler
from agents.talk.copy_client import CopyClient, CopyReply
from agents.templates import Probe
from agents.templates.filling import ArgumentRefused, name_adapter

CHECK_SECONDS = 60.0  # between two looks at a copy that has reported what is assigned to it
FIRST_DELAY_SECONDS = 2.0
LONGEST_DELAY_SECONDS = 300.0
LISTED = "its list of models"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdapterLook:
    """What came of the last look at a copy's adapters."""

    wanted: tuple[AssignedAdapter, ...]
    failing: Mapping[str, str]  # by adapter: the server's words
    tries: int  # in a row that failed
    until: float  # the next look, unless others are assigned before


class AdapterLoader:
    """Brings the adapters of copies to what is assigned. What fails is tried again later, and disturbs nothing."""

    def __init__(self, filler: Filler, talk: CopyClient, clock: Callable[[], float]) -> None:
        self._filler = filler
        self._talk = talk
        self._clock = clock
        self._looks: dict[str, AdapterLook] = {}

    def is_due(self, copy: NodeCopy, now: float) -> bool:
        """Returns whether to look at a ready copy's adapters now."""
        look, wanted = self._looks.get(copy.id), copy.wanted.adapters
        if look is None or look.wanted != wanted:
            return bool(wanted or look)
        return bool(wanted or look.failing) and now >= look.until

    def load(self, copy: NodeCopy) -> None:
        """Unloads what is not assigned, loads what is missing, and notes what failed."""
        filled, wanted, before = self._filler.filled(copy), copy.wanted.adapters, self._looks.get(copy.id)
        if filled is None or filled.adapters is None:
            return
        probes, failing = filled.adapters, dict[str, str]()
        reply = self._talk.ask(copy.listens_at, probes.list)
        there = _read_adapters(reply.body) if reply.ok else None
        if there is None:
            failing[LISTED] = _quote(reply)
        else:
            paths = {each.name: self._filler.find_adapter(copy, each) for each in wanted}
            failing |= self._unload(copy, probes.unload, there, paths)
            failing |= self._load(copy, probes.load, there, paths)
        tries = (before.tries if before and before.wanted == wanted else 0) + 1 if failing else 0
        delay = min(FIRST_DELAY_SECONDS * 2 ** (tries - 1), LONGEST_DELAY_SECONDS) if failing else CHECK_SECONDS
        for name, why in failing.items() if tries == 1 else ():
            log.warning("%s: adapter %s: %s", copy.id, name, why)
        self._looks[copy.id] = AdapterLook(wanted, failing, tries, self._clock() + delay)

    def _unload(
        self, copy: NodeCopy, probe: Probe, there: dict[str, str], paths: Mapping[str, str | ArgumentRefused]
    ) -> Iterator[tuple[str, str]]:
        """Unloads adapters that are not assigned, or lie elsewhere by now; yields those that stay, and why."""
        for name, root in list(there.items()):
            path = paths.get(name)
            if path is None or (isinstance(path, str) and path != root):
                reply = self._talk.ask(copy.listens_at, name_adapter(probe, name))
                if reply.ok:
                    del there[name]
                else:
                    yield name, _quote(reply)

    def _load(
        self, copy: NodeCopy, probe: Probe, there: Mapping[str, str], paths: Mapping[str, str | ArgumentRefused]
    ) -> Iterator[tuple[str, str]]:
        """Loads assigned adapters that are not there; yields those that fail, and why."""
        for name, path in paths.items():
            if isinstance(path, ArgumentRefused):
                yield name, path.message
            elif name not in there:
                reply = self._talk.ask(copy.listens_at, name_adapter(probe, name, path))
                if not reply.ok:
                    yield name, _quote(reply)

    def list_failing(self, copies: Collection[NodeCopy]) -> tuple[HeldStart, ...]:
        """Returns the ready copies that lack adapters, with the words of their servers."""
        looks = ((copy, self._looks.get(copy.id)) for copy in copies if copy.stage is Stage.READY)
        return tuple(
            HeldStart(copy.instance, Shortfall(ADAPTER_NOT_LOADED, _spell(look.failing)))
            for copy, look in looks
            if look and look.failing
        )

    def forget(self, copy: str) -> None:
        self._looks.pop(copy, None)


def _spell(failing: Mapping[str, str]) -> str:
    name, why = next(iter(failing.items()))
    more = f"; {len(failing) - 1} more fail" if len(failing) > 1 else ""
    return f"adapter {name}: {why}"[: 480 - len(more)] + more


def _read_adapters(body: bytes) -> dict[str, str] | None:
    """Returns the adapters that a copy reports, with their folders: models with a parent; None for another answer."""
    try:
        models = json.loads(body)["data"]
        return {str(model["id"]): str(model.get("root")) for model in models if model.get("parent")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _quote(reply: CopyReply) -> str:
    """Returns what a server answered, in its own words where it has any."""
    if not reply.status:
        return reply.why or "no answer"
    try:
        answer = json.loads(reply.body)
        words = answer.get("error", answer)
        text = str(words.get("message") if isinstance(words, dict) else words)
    except (ValueError, AttributeError, RecursionError):
        text = reply.body[:200].decode(errors="replace")
    printable = "".join(sign if sign.isprintable() else " " for sign in text[:200])
    return f"{reply.status}: {printable}"

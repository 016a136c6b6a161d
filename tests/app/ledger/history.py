"""Random histories: agents that start, resize and end copies, fall silent, come back or do not; and what was true."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

from agents.contract.reports import Copy, UsageInterval
from app.ledger import accounting, keeping
from app.store.money import allocations
from tests.app.ledger.judge import ALWAYS, Held, Paid, Priced
from tests.app.ledger.town import Ledger, usage

NUMBERS = count()
# Seconds. Most of a history's work are the quarter-hours that pass in it: few pauses are long.
PAUSES = (*(1, 7, 61, 240, 600, 899, 901, 3_700) * 3, 40_000, 100_000)
TOGETHER = 3 / 17  # of all that happens: what the control plane does, to all histories at once


class Crash(Exception):
    """The server is killed inside a transaction."""


@dataclass
class Agent:
    """A node's agent: a journal of what ran, and what of it was acknowledged."""

    node: str
    copies: dict[str, UsageInterval] = field(default_factory=dict)
    untold: dict[str, UsageInterval] = field(default_factory=dict)
    told: dict[str, UsageInterval] = field(default_factory=dict)  # as the control plane heard it first
    heard: datetime | None = None
    dead: bool = False

    def opened(self) -> list[UsageInterval]:
        return [one for one in self.copies.values() if one.ended_at is None]

    def write(self, one: UsageInterval) -> None:
        self.copies[one.id] = self.untold[one.id] = one


@dataclass
class History:
    """What happened, and what of it is declared."""

    town: Ledger
    rng: random.Random
    kind: str
    agents: list[Agent]
    paid: list[Paid] = field(default_factory=list)
    prices: list[Priced] = field(default_factory=list)
    gpus: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        self.price()
        for agent in self.agents:
            self.own(agent, 1)

    def advance(self) -> None:
        """One thing more happens."""
        acts = [
            self.start, self.start, self.start, self.end, self.resize, self.resize, self.report, self.report,
            self.report, self.report, self.stale, self.price, self.grow, self.death,
        ]  # fmt: skip
        self.rng.choice(acts)()

    def agent(self) -> Agent:
        return self.rng.choice(self.agents)

    def start(self) -> None:
        agent = self.agent()
        made = usage(
            f"copy-{next(NUMBERS)}", self.town.now, gpu=self.rng.randrange(self.gpus[agent.node]),
            sm=self.rng.choice([5.0, 33.3, 50.0, 100.0, self.rng.uniform(0, 100)]),
            memory=self.rng.choice([1.9, 4.0, 16.0, self.rng.uniform(0, 20)]),
            tenant=self.rng.choice(["shop", "lab"]), service=self.rng.choice(["a", "b"]),
            dedicated=self.rng.random() < 0.1,
        )  # fmt: skip
        agent.write(made)

    def end(self) -> None:
        agent = self.agent()
        for one in agent.opened()[:1]:
            agent.write(_ended(one, self.town.now))

    def resize(self) -> None:
        agent = self.agent()
        for one in agent.opened()[-1:]:
            agent.write(_ended(one, self.town.now))
            again = usage(
                f"copy-{next(NUMBERS)}", self.town.now, gpu=one.gpu, sm=self.rng.uniform(1, 60), memory=one.memory_gib,
                tenant=one.tenant, service=one.service,
            )  # fmt: skip
            agent.write(again)

    def report(self) -> None:
        """Everything that is not acknowledged; the answer may be lost, and all is said again."""
        agent = self.agent()
        if not agent.dead:
            self.deliver(agent, acknowledged=self.rng.random() < 0.7)

    def deliver(self, agent: Agent, acknowledged: bool = True) -> None:
        named = [Copy(id=one.id, instance=one.instance, gpu=one.gpu, stage="ready") for one in agent.opened()]
        self.town.report(agent.node, *agent.untold.values(), copies=named)
        for one in agent.untold.values():
            if one.id not in agent.told or agent.told[one.id].ended_at is None:
                agent.told[one.id] = one
        agent.heard = self.town.now
        if acknowledged:
            agent.untold.clear()

    def stale(self) -> None:
        """An old message comes again, in a report that is older than the newest."""
        agent = self.agent()
        if agent.told and not agent.dead:
            old = self.rng.choice(list(agent.told.values()))
            self.town.late_report(agent.node, _opened(old))

    def price(self) -> None:
        nano = self.rng.choice([1_200_000_000, 333_333_333, 7, self.rng.randrange(10**11)])
        if self.prices and nano == self.prices[-1].nano_per_hour:
            return
        self.town.gpu_type(nano / 10**9, self.kind)
        if self.prices:
            self.prices[-1] = replace(self.prices[-1], stop=self.town.now)
        self.prices.append(Priced((self.kind, "default", "onDemand"), nano, self.town.now))

    def grow(self) -> None:
        self.own(self.agent(), 2)

    def own(self, agent: Agent, gpus: int) -> None:
        before = self.gpus.get(agent.node, 0)
        if gpus > before:
            self.town.node(agent.node, gpus, self.kind)
            self.gpus[agent.node] = gpus
            way = (self.kind, "default", "onDemand")
            # Declared anew, all GPUs of the node are cut here.
            self.paid = [
                replace(one, stop=self.town.now) if one.node == agent.node and one.stop == ALWAYS else one
                for one in self.paid
            ]
            self.paid += [Paid(agent.node, gpu, way, 16.0, self.town.now) for gpu in range(gpus)]

    def death(self) -> None:
        """A node is never heard again; seldom, and not before anything was told."""
        agent = self.agent()
        if self.rng.random() < 0.2 and agent.heard is not None:
            agent.dead = True

    def held(self) -> Iterator[Held]:
        """What was true, as far as anybody could know it."""
        for agent in self.agents:
            for one in (agent.told if agent.dead else agent.copies).values():
                assert agent.heard is not None
                stop = one.ended_at or max(agent.heard, one.started_at)
                yield Held(
                    one.id, agent.node, one.gpu, one.tenant, one.service, one.sm_percent, one.memory_gib, one.dedicated,
                    one.started_at, stop,
                )  # fmt: skip


def histories(town: Ledger, seed: int, events: int, count: int) -> list[History]:
    """So many that have come to rest: each on nodes of its own and at prices of its own, all in one time and ledger."""
    rng = random.Random(seed)
    made = [_history(town, rng.randrange(2**32)) for _ in range(count)]
    for one in made:
        one.begin()
    for _ in range(events):
        town.passes(timedelta(seconds=rng.choice(PAUSES)))
        if rng.random() < TOGETHER:
            rng.choice([_account, _account, _crash])(town)
        else:
            for one in made:
                one.advance()
    _come_to_rest(town, made)
    return made


def forgotten(town: Ledger) -> None:
    """Nothing of what happened is there any more: what is looked through for the next ones does not grow."""
    town.run(f"TRUNCATE object, reference, change, price, {', '.join(row[0] for row in town.rows(OF_NODES))} CASCADE")


# Tables that speak of nodes.
OF_NODES = """
    SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND attname = 'node'
    ORDER BY relname
"""


def _history(town: Ledger, seed: int) -> History:
    number = next(NUMBERS)
    agents = [Agent(f"node-{number}-{place}") for place in range(2)]
    return History(town, random.Random(seed), f"type-{number}", agents)


def _account(town: Ledger) -> None:
    town.end_usage()
    town.account()


def _crash(town: Ledger) -> None:
    def killed(connection: object) -> None:
        for node in allocations.due(connection):  # type: ignore[arg-type]
            accounting.account(connection, node)  # type: ignore[arg-type]
        raise Crash

    keeping.make_room(town.database)
    try:
        town.database.write(killed)
    except Crash:
        return


def _come_to_rest(town: Ledger, made: Sequence[History]) -> None:
    """Who lives tells all, twice; who does not is given up after a day."""
    for pause in (timedelta(minutes=1), timedelta(minutes=20), timedelta(hours=26), timedelta(minutes=20)):
        town.passes(pause)
        for one in made:
            for agent in one.agents:
                if not agent.dead:
                    one.deliver(agent)
        town.end_usage()
        for _ in range(3):
            town.account()


def _ended(one: UsageInterval, now: datetime) -> UsageInterval:
    return usage(
        one.id, one.started_at, now, gpu=one.gpu, sm=one.sm_percent, memory=one.memory_gib, tenant=one.tenant,
        service=one.service, dedicated=one.dedicated,
    )  # fmt: skip


def _opened(one: UsageInterval) -> UsageInterval:
    return usage(
        one.id, one.started_at, gpu=one.gpu, sm=one.sm_percent, memory=one.memory_gib, tenant=one.tenant,
        service=one.service, dedicated=one.dedicated,
    )  # fmt: skip

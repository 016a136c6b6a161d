"""Puts questions to the process that answers them: reads what they are about at one moment, returns the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import Connection

from app.access import Principal
from app.api.answers.solvers import call_solvers
from app.api.replies import T
from app.context import Context
from app.control.solve.questions import LoopsMissing, NoAnswer
from app.problem import HttpProblem
from app.store.plans import pieces, plan_reads, plans
from app.worker.places import WorkersBusy

if TYPE_CHECKING:
    from app.control.domain.snapshot import ExpectedLoad, Snapshot
    from app.control.solve.aside import Aside
    from solvers.planning.plan import Plan

RETRY = {"Retry-After": "5"}
COMPILE_SECONDS = 30  # by then most machines have the loops


def ask(ctx: Context, who: Principal, order: Aside[T], seconds: float) -> T:
    """Returns the answer; 503 where loops are compiled, too many questions wait or the process died."""
    try:
        return call_solvers(lambda: ctx.desk.ask(order, seconds, who.party))
    except WorkersBusy:
        raise HttpProblem(
            "unavailable", "too many questions are being answered; ask again shortly", headers=RETRY
        ) from None
    except LoopsMissing:
        raise HttpProblem(
            "unavailable",
            "the solver's loops are still being compiled, once on this machine; ask again in about half a minute",
            headers={"Retry-After": str(COMPILE_SECONDS)},
        ) from None
    except NoAnswer as lost:
        raise HttpProblem("unavailable", f"the question got no answer: {lost}", headers=RETRY) from None


def read_recorded(connection: Connection, generation: int) -> tuple[Snapshot, Plan]:
    """Returns a plan and the snapshot that it was made from. Generation 0: the one in force, else the newest."""
    from app.control.record.encoding import join_snapshot
    from solvers.planning.plan import Plan

    number = generation or plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
    row = plans.read_row(connection, number) if number else None
    if row is None:
        detail = f"there is no plan {generation}" if generation else "there is no plan yet; why: gpuwright explain plan"
        raise HttpProblem("not-found", detail)
    hashes = [bytes.fromhex(digest) for digest in row.snapshot]
    found = pieces.get(connection, [*hashes, bytes(row.body)])
    if len(found) < len({*hashes, bytes(row.body)}):
        raise HttpProblem("gone", f"the snapshot of plan {number} is no longer kept")
    return join_snapshot([found[digest] for digest in hashes]), msgspec.json.decode(found[bytes(row.body)], type=Plan)


def read_now(connection: Connection) -> Snapshot:
    """Returns a snapshot of this moment, with the rates that the last plan assumed for services that still exist."""
    from app.control.domain.snapshot import ExpectedLoad
    from app.control.domain.specs import rate_per_second
    from app.control.observe.observer import ForecastInput, Observer
    from app.control.record.records import read_last_loads

    last = read_last_loads(connection)  # where they are no longer kept, the declared rates will do

    def expecting(known: ForecastInput) -> dict[str, ExpectedLoad]:
        rates = {
            service.full_name: rate_per_second(service.spec) for service in known.declared if service.kind == "Service"
        }
        return {name: last.get(name) or ExpectedLoad(rate, reason="declared") for name, rate in rates.items()}

    return Observer().snapshot(connection, 0, expecting)

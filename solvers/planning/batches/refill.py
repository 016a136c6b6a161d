"""Improves what a part of a fleet runs: refills a few of its GPUs at a time while that lowers the cost."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

from solvers.planning.drafting.drafts import prepare
from solvers.planning.problem import Instance, Problem
from solvers.planning.replan.match import match_running
from solvers.planning.replan.search import seat_all
from solvers.planning.search import dive
from solvers.planning.search.gather import gather
from solvers.planning.search.limits import enforce_limits
from solvers.planning.search.local_search import LocalSearch
from solvers.planning.search.node_search import NodeSearch
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.realise import instances, leave_out, placed_instances, prune
from solvers.planning.search.tables import tables

PRICE_ROUNDS = 3  # of the LP whose prices guide the search
TRIES_A_TURN = 50
TRIES_PER_GPU = 10
NODE_TURNS = 20  # of the search for nodes, where these are billed whole
LEAST_GAIN_SHARE = 0.1  # of a usual GPU's price: refilling for less is mostly refused


def refill_part(problem: Problem, seed: int) -> list[Instance]:
    """Returns what the GPUs of a part are to run for less; it may carry less than is needed.

    The search starts from what runs there, and changes a GPU only where that gains something.
    """
    if not problem.services:
        return []
    t = tables(problem)
    shop = prepare(t)
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate, extra)
    for _ in dive.generate(shop, course, PRICE_ROUNDS):
        pass
    shop.clear_all()
    seat_all(t, shop, problem.state.running if problem.state else (), ())
    used = len(shop.used)
    local_search = LocalSearch(shop, seed, -LEAST_GAIN_SHARE, TRIES_A_TURN)
    for _ in islice(local_search.refills(course.rate, course.extra), -(-TRIES_PER_GPU * used // TRIES_A_TURN)):
        pass
    if len(shop.nodes.gpus):
        with closing(NodeSearch(shop, local_search).rounds(course.rate, course.extra)) as exchanges:
            for _ in islice(exchanges, NODE_TURNS):
                pass
    prune(shop)
    leave_out(shop)
    enforce_limits(shop)
    gather(shop)
    placed, _ = instances(t, placed_instances(shop))
    return match_running(t, placed)

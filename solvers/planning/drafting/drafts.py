"""Makes drafts of plans: a first one at once, then better ones for as long as the caller asks for more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from solvers.planning.drafting.met import met_columns
from solvers.planning.drafting.restricted import PatternChoice, may_choose
from solvers.planning.fleet.grids import Floats
from solvers.planning.planner_draft import RivalPlan
from solvers.planning.problem import Instance
from solvers.planning.search import dive
from solvers.planning.search.arrays import Board
from solvers.planning.search.gather import gather
from solvers.planning.search.limits import enforce_limits
from solvers.planning.search.local_search import PATIENCE_CYCLES, LocalSearch
from solvers.planning.search.master import ResourcePrices
from solvers.planning.search.node_search import NodeSearch
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.realise import NOBODY, PlacedInstances, leave_out, placed_instances, prune
from solvers.planning.search.seating import seat_instances
from solvers.planning.search.shares import InstanceShares
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import PatternColumn, Workshop, usual_levels, workshop

COARSE_SM_PERCENT, FINE_SM_PERCENT = 10, 4  # step widths
LEVEL_SHARES = (0.5, 0.9)  # shares of the pressure on a GPU full of its usual residents
FIRST_ROUNDS = 3  # of the LP, for a quick first plan
ROUNDS = 8
MOST_MET_GPUS = 2_000  # of a fleet: in a larger one, the bound's prices take too long to settle
MET_WORK_PER_SERVICE = 10_000  # of the bound, about ten milliseconds
FEW_SERVICES = 100  # fewer are given as much work
MET_WORK_PER_STEP = 8_000  # of the bound, about the time of a step of the local search
CHOICE_STEPS = 200  # of work, a choice among patterns: about the time of so many of the local search
FIRST_SEARCH_STEPS = 100  # of work, where the bound's patterns come next: they find more
CHOSEN_SEARCH_STEPS = 450  # of work, before a choice among them: of fleets whose GPUs are all used, it finds less
SHORT_SEARCH_STEPS = 200  # of work, where there is a choice: several short searches find more than a long one
NODE_PATIENCE_CYCLES = 1  # of the local search, where nodes are billed whole: it sees GPUs alone


@dataclass(frozen=True, slots=True)
class SeatedRival:
    """The plan of another planner, and its instances as those of the services that the search places."""

    rival: RivalPlan
    instances: Sequence[Instance]


AskRivals = Callable[[bool], Sequence[SeatedRival]]  # the quick planners, or those that take longer


@dataclass(frozen=True, slots=True)
class SearchDraft:
    """The residents of a board, their cost, and the steps that it took. Without a method there is no new plan."""

    placed: PlacedInstances
    cost: float
    work: int
    method: str
    ends_the_beginning: bool = False  # everything is served, or the first dive is done
    rivals: tuple[RivalPlan, ...] | None = None  # that other planners have made, at a step that asks them


def prepare(t: Tables) -> Workshop:
    """Returns an empty board with the offers at coarse steps."""
    return workshop(t, COARSE_SM_PERCENT, usual_levels(t, LEVEL_SHARES))


def drafts(shop: Workshop, seed: int, ask_rivals: AskRivals | None = None) -> Iterator[SearchDraft]:
    """Yields better and better drafts without end; the caller decides when to stop.

    After the second dive it asks other planners, if it may, and after the first search those that take longer, if that
    leaves load: most of what a dive leaves, a search serves before they answer. The next search begins at the best plan
    of theirs if that is ahead.
    """
    t = shop.t
    if not t.pools:
        yield SearchDraft(NOBODY, shop.cost, 1, "no GPUs", True)
        return
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate, extra)
    progress, local_search = _Progress(shop, InstanceShares(shop)), LocalSearch(shop, seed)
    progress.choice = PatternChoice(shop, seed) if may_choose(t) else None
    stages = ((COARSE_SM_PERCENT, FIRST_ROUNDS), (COARSE_SM_PERCENT, ROUNDS), (FINE_SM_PERCENT, ROUNDS))
    for step, rounds in stages if progress.choice is None else stages[:2]:
        progress.widen()
        if progress.is_served and course.dear == dive.TRUE_FACTOR:
            course.dear = dive.DEAR_FACTOR  # the fleet is large enough
        if step == FINE_SM_PERCENT and may_meet(t):
            course.columns.update((column.key, column) for column in (yield from _meet(progress)))
        shop.look_at(step)
        prices = yield from _price(progress, course, rounds)
        if prices is None:
            yield progress.nothing(ends_the_beginning=True)
            return  # nothing can be placed
        start = _DiveStart(
            dive.columns_of(course),
            prices._replace(weight=prices.weight[prices.weight > dive.LEAST_WEIGHT]),
            course.rate.copy(),
            course.extra.copy(),
        )
        for _ in dive.dive(shop, course, start.prices, start.columns, dive.SHALLOW):
            progress.work += 1
            progress.note()
        found = progress.draft("LP diving")
        if found:
            yield found
        yield progress.nothing(ends_the_beginning=True)
        if rounds != FIRST_ROUNDS:  # after the first, better prices gain more than a local search at these
            if ask_rivals is not None and step == COARSE_SM_PERCENT:
                yield from _ask(progress, ask_rivals, quick=True)
            progress.begin_ahead()
            steps = CHOSEN_SEARCH_STEPS if progress.choice is not None else FIRST_SEARCH_STEPS
            is_first = step == COARSE_SM_PERCENT and may_meet(t)
            yield from _search(progress, local_search, start, "local search", steps if is_first else None)
            if ask_rivals is not None and step == COARSE_SM_PERCENT and not progress.is_served:
                yield from _ask(progress, ask_rivals, quick=False)
    if progress.choice is not None:
        progress.choice.note((yield from _meet(progress)))
    yield from _choose(progress, local_search, start)
    yield from _dive_again(progress, local_search, course, start, np.random.default_rng(seed))


class _DiveStart(NamedTuple):
    """The columns and prices from which dives begin."""

    columns: list[PatternColumn]
    prices: ResourcePrices
    rate: Floats
    extra: Floats


@dataclass
class _Progress:
    """Counts the steps of work and keeps the least cost of a draft."""

    shop: Workshop
    shares: InstanceShares
    choice: PatternChoice | None = None  # on small fleets
    work: int = 0
    least: float = np.inf
    best: list[PatternColumn] = field(default_factory=list)  # of that draft, where there is a choice
    is_served: bool = False  # everything, by some draft
    rivals: tuple[RivalPlan, ...] = ()  # that other planners have made
    ahead: Board | None = None  # of the best rival, until a search begins there
    missed: float = np.inf  # what the last local search left unserved, by its price

    def widen(self) -> None:
        """Lets shares be unequal once a draft serves everything: even shares serve more of a fleet too small."""
        if self.is_served:
            self.shares.widen()

    def draft(self, method: str) -> SearchDraft | None:
        """Puts the board right and returns it if that makes it the cheapest so far."""
        shop = self.shop
        prune(shop)
        self.shares.cut()
        leave_out(shop)
        enforce_limits(shop)
        gather(shop)
        cost = shop.bill + self.shares.lost()
        columns, is_served = self.note(), not shop.need.any()
        self.is_served = self.is_served or is_served
        if not cost < self.least - 1e-9:
            return None
        self.least, self.best = cost, columns
        return SearchDraft(placed_instances(shop), cost, self.work, method, is_served)

    def begin_ahead(self) -> None:
        """Puts the best rival's plan on the board, if it costs less than what is there."""
        if self.ahead is not None:
            own = self.shop.kept_board()
            cost = self.shop.bill
            self.shop.bring_back(self.ahead)
            if self.shop.bill >= cost:
                self.shop.bring_back(own)
            self.ahead = None

    def note(self) -> list[PatternColumn]:
        """Keeps the board's patterns to choose from, and returns them."""
        if self.choice is None:
            return []
        columns = self.shop.columns(self.shop.used)
        self.choice.note(columns)
        return columns

    def may_save_nodes(self) -> bool:
        """Tells whether nodes are worth a search: no node costs as much as leaving a service out.

        Everything is served, or GPUs are empty and yet two searches in a row left as much unserved.
        """
        shop, before = self.shop, self.missed
        need = shop.lacking
        self.missed = float(shop.t.unserved_price @ need)
        is_stuck = self.missed >= before * (1 - 1e-9) and bool(shop.pools.empties.any())
        return is_stuck or not need.any()

    def nothing(self, *, ends_the_beginning: bool = False) -> SearchDraft:
        """Reports the steps of work alone."""
        return SearchDraft(NOBODY, np.inf, self.work, "", ends_the_beginning)


def _ask(progress: _Progress, ask_rivals: AskRivals, *, quick: bool) -> Iterator[SearchDraft]:
    """Asks other planners, and yields the drafts of those that are ahead.

    Where something runs that a draft serves in full, hardly any is ahead, and cycles are many: then none is asked.
    """
    state = progress.shop.t.problem.state
    if progress.is_served and state is not None and state.running:
        yield SearchDraft(NOBODY, np.inf, progress.work, "", rivals=())
        return
    progress.work += 1
    yield progress.nothing()  # a caller whose steps end here is spared the others
    rivals = ask_rivals(quick)
    progress.rivals += tuple(each.rival for each in rivals)
    own = progress.shop.kept_board()
    yield SearchDraft(NOBODY, np.inf, progress.work, "", rivals=progress.rivals)
    for each in rivals:
        if each.rival.plan is not None:
            seat_instances(progress.shop, each.instances)
            found = progress.draft(f"the plan of {each.rival.about.planner}")
            if found:
                progress.work += 1
                progress.ahead = progress.shop.kept_board()
                yield replace(found, work=progress.work)
    progress.shop.bring_back(own)


def _price(progress: _Progress, course: dive.Dive, rounds: int) -> Generator[SearchDraft, None, ResourcePrices | None]:
    """Yields drafts of patterns while prices become those of an LP, and returns the last prices."""
    state, latest = progress.shop.t.problem.state, None
    tells_shortage = rounds != FIRST_ROUNDS and not progress.is_served and not (state and state.running)
    for prices in dive.generate(progress.shop, course, rounds, tells_shortage=tells_shortage):
        if prices is None:
            progress.work += 1
            found = progress.draft("patterns at resource prices" if progress.work == 1 else "patterns at LP prices")
            if found:
                yield found
        else:
            latest = prices
    return latest


def _dive_again(
    progress: _Progress, local_search: LocalSearch, course: dive.Dive, start: _DiveStart, rng: np.random.Generator
) -> Iterator[SearchDraft]:
    """Dives from shaken prices, each time with other limits, and searches around the result."""
    while True:
        progress.widen()
        progress.shop.look_at(FINE_SM_PERCENT)
        shake = float(rng.choice([0.02, 0.06])) * rng.standard_normal(len(start.rate))
        course.rate, course.extra = start.rate * np.exp(shake), start.extra.copy()
        limits = dive.DiveLimits(
            rounds=int(rng.choice([3, 5])),
            up=float(rng.choice([0.03, 0.08, 0.15])),
            useful=float(rng.choice([0.5, 0.7, 0.85])),
        )
        for _ in dive.dive(progress.shop, course, start.prices, start.columns, limits):
            progress.work += 1
            progress.note()
            yield progress.nothing()
        yield from _search(progress, local_search, start, "best of several local searches")
        yield from _choose(progress, local_search, start)


def _meet(progress: _Progress) -> Generator[SearchDraft, None, list[PatternColumn]]:
    """Returns the patterns that the search for the bound meets, for the LP or for the choice."""
    work = MET_WORK_PER_SERVICE * max(len(progress.shop.t.services), FEW_SERVICES)
    progress.work += work // MET_WORK_PER_STEP
    yield progress.nothing()  # a caller whose steps end here is spared them
    return met_columns(progress.shop, work)


def may_meet(t: Tables) -> bool:
    """Tells whether the bound's patterns are worth their time: the fleet is not too large, and all is known to them."""
    return sum(len(pool.gpus) for pool in t.pools) <= MOST_MET_GPUS and t.problem.policy.power_budget_w is None


def _choose(progress: _Progress, local_search: LocalSearch, start: _DiveStart) -> Iterator[SearchDraft]:
    """Chooses among all patterns found so far, at first as if no plan were known, and searches around each choice."""
    shop, choice = progress.shop, progress.choice
    if choice is None:
        return
    choice.note(start.columns)
    for is_fresh in (True, False):
        progress.work += CHOICE_STEPS
        yield progress.nothing()  # a caller whose steps end here is spared the choice
        choice.widen()
        chosen, prices = choice.choose(progress.best, progress.least, is_fresh=is_fresh)
        for column in chosen:
            shop.place(column)
        shop.restack()
        shop.fill(prices.rate, shop.need)
        shop.restack()
        progress.work += 1
        found = progress.draft("choice of patterns")
        if found is not None:
            yield found
        if found is not None or is_fresh:
            around = start._replace(rate=prices.rate, extra=prices.extra)
            yield from _search(progress, local_search, around, "local search around a choice of patterns")


def _search(
    progress: _Progress, local_search: LocalSearch, start: _DiveStart, method: str, steps: int | None = None
) -> Iterator[SearchDraft]:
    """Searches around the board, in so many steps or until nothing more is found."""
    has_nodes = bool(len(progress.shop.nodes.gpus))
    if steps is None and progress.choice is not None:
        steps = SHORT_SEARCH_STEPS
    most = np.inf if steps is None else progress.work + steps
    for is_plan in local_search.cycles(start.rate, start.extra, NODE_PATIENCE_CYCLES if has_nodes else PATIENCE_CYCLES):
        if progress.work >= most:
            break
        progress.work += 1
        progress.note()
        yield (progress.draft(method) if is_plan else None) or progress.nothing()
    if has_nodes and progress.may_save_nodes():
        for is_plan in NodeSearch(progress.shop, local_search).rounds(start.rate, start.extra):
            progress.work += 1
            yield (progress.draft("search for nodes") if is_plan else None) or progress.nothing()

"""What an assessment asks a planner: what Profiles certify; and which model to profile next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cli.output import say
from cli.quiet import quiet_stdout
from clusters.sharing.worth import CampaignWorth, find_worths

if TYPE_CHECKING:
    from clusters.bill import Bill
    from clusters.certified.language import LanguageAdvice
    from clusters.certified.posing import KnownProfiles
    from clusters.certified.savings import CertifiedSavings
    from clusters.estate import Estate, WorkloadName
    from clusters.measured import MeasuredLoads
    from clusters.promises import WorkloadPromise
    from clusters.savings.needs import LoadNeed
    from clusters.sharing import SharingEstimate
    from solvers.pools.links import ServerLink

WORK = 2000  # steps of the planner's search, so that the same input gives the same plan on any machine
SECONDS = 20.0


def certify(
    known: KnownProfiles, estate: Estate, bill: Bill, loads: MeasuredLoads,
    needs: Mapping[WorkloadName, LoadNeed | str], promises: Mapping[WorkloadName, WorkloadPromise],
) -> CertifiedSavings:  # fmt: skip
    """Returns what the planner's plan with these profiles saves."""
    from solvers.compiled import call_before_compiling

    call_before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    from clusters.certified.planning import certify_savings
    from solvers.planning.solve import SolveBudget

    with quiet_stdout():
        return certify_savings(estate, bill, loads, needs, promises, known, SolveBudget(SECONDS, WORK))


def advise(
    known: KnownProfiles, estate: Estate, bill: Bill, loads: MeasuredLoads,
    promises: Mapping[WorkloadName, WorkloadPromise],
) -> list[LanguageAdvice]:  # fmt: skip
    """Returns which servers would serve each language model, and whether prefill and decode apart pay."""
    from clusters.certified.language import advise_language_models
    from simulation.sizing.links import NodeGpus, join_gpu_types

    def join_gpus(nodes: Mapping[str, Counter[int]]) -> list[ServerLink]:
        specs = {name: known.gpu_specs.get(name, {}) for name in nodes}
        listed = {name: [NodeGpus(gpus) for gpus in sizes.elements()] for name, sizes in nodes.items()}
        return join_gpu_types(specs, listed, are_all_nodes=True)

    with quiet_stdout():
        return list(advise_language_models(estate, bill, loads, promises, known, join_gpus, say))


def weigh_campaigns(
    estate: Estate, sharing: SharingEstimate, promises: Mapping[WorkloadName, WorkloadPromise],
    certified: CertifiedSavings | None,
) -> tuple[CampaignWorth, ...]:  # fmt: skip
    """Returns the campaigns for models without profiles by their worth; a model nobody named is its workload's."""
    planned = {each.workload for each in certified.workloads} if certified else set()
    models = {
        each.name: promises[each.name].model or str(each.name) for each in estate.workloads if each.name not in planned
    }
    return tuple(find_worths(estate, sharing, models))

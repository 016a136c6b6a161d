"""What is certified with profiles, and what one campaign is worth, for people and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.estate.money import count_of, money
from cli.estate.sharing import spell_range, stay_sentences
from cli.output import TableText, number, plain
from clusters.bill import HOURS_A_MONTH, Bill
from clusters.certified.savings import CertifiedSavings
from clusters.sharing.worth import CampaignWorth

MOST_CAMPAIGNS = 10
L2_BASIS = "It is counted from what is paid now, and nothing of L0 and L1 is added to it. It takes for granted:"
L2_ASSUMPTIONS = (
    "Profiles are those of what is served, and loads are not higher than the highest that was measured;",
    "replicas stand on nodes of their own kind, or of kinds alike that nothing bars and whose GPUs have Profiles;",
    "minReplicas, PodDisruptionBudgets and spread stay, and free GPUs for what the loss of any one node ends;",
    "workloads without Profiles keep their GPUs; CPU, host memory, ports and other devices of pods are not compared.",
)


def show_certified(bill: Bill, found: CertifiedSavings) -> None:
    """Prints what the plan saves, what no plan exceeds, and a row for each workload that is planned."""
    for sentence in summarize_plan(bill, found):
        print(plain(sentence))
    if found.workloads:
        for text in L2_ASSUMPTIONS:
            print(f"- {text}")
    for sentence in stay_sentences(found.staying):
        print(plain(sentence))
    if found.workloads:
        print()
        write_certified(found).show()


def summarize_plan(bill: Bill, found: CertifiedSavings) -> list[str]:
    """Returns what the plan saves, which nodes can go, and what no plan exceeds; then what it rests on."""
    sentences = [summarize_certified(bill, found)]
    if found.nodes:
        sentences.append(f"Nodes that can go: {', '.join(found.nodes)}.")
    if found.limit_nano_per_hour is not None:
        sentences.append(
            f"No plan saves more than {_share(found.limit_nano_per_hour, bill)} under the same assumptions."
        )
    return [*sentences, L2_BASIS] if found.workloads else sentences


def summarize_certified(bill: Bill, found: CertifiedSavings) -> str:
    """Returns what the plan saves as a sentence."""
    if not found.workloads:
        return "L2, certified with profiles: nothing, for no workload has Profiles that fit it."
    nano, nodes = found.nano_per_hour, count_of(len(found.nodes), "node")
    return (
        f"L2, certified with profiles: {money(nano)} {bill.currency} an hour can be saved, {_share(nano, bill)},"
        f" {_month(nano)} a month: {nodes}."
    )


def write_certified(found: CertifiedSavings) -> TableText:
    """Returns a row for each workload that is planned."""
    return TableText(("WORKLOAD", "REPLICAS", "ON GPUS", "OF THEIR SMS", "AT A SECOND"), [
        (
            str(each.workload), str(each.replicas), str(each.gpus), number(round(each.sm_gpus, 2)),
            number(float(f"{each.rate_per_second:.3g}")),
        )
        for each in found.workloads
    ])  # fmt: skip


def show_campaigns(bill: Bill, campaigns: Sequence[CampaignWorth]) -> None:
    """Prints which model to profile first, and what each campaign may turn from L1 into L2."""
    print(plain(summarize_campaigns(bill, campaigns)))
    write_campaigns(campaigns).show()


def summarize_campaigns(bill: Bill, campaigns: Sequence[CampaignWorth]) -> str:
    """Returns what the best campaign is worth as a sentence."""
    first = campaigns[0]
    return (
        f"Profile {first.model} first: up to {_month(first.nano_per_hour)} {bill.currency} a month become certain,"
        f" {_month(first.alone_nano_per_hour)} of it without any other new profile."
    )


def write_campaigns(campaigns: Sequence[CampaignWorth]) -> TableText:
    """Returns a row for each of the best campaigns."""
    return TableText(("MODEL", "WORTH A MONTH", "ALONE", "WORKLOADS"), [
        (
            each.model, _month(each.nano_per_hour), _month(each.alone_nano_per_hour),
            ", ".join(map(str, each.workloads)),
        )
        for each in campaigns[:MOST_CAMPAIGNS]
    ])  # fmt: skip


def _share(nano: int, bill: Bill) -> str:
    return spell_range(nano, nano, bill)


def _month(nano_per_hour: int) -> str:
    return money(nano_per_hour * HOURS_A_MONTH)


def write_certified_data(found: CertifiedSavings) -> dict[str, Any]:
    """Returns level L2 as JSON's types; money is in billionths an hour."""
    return {
        "level": "L2", "nanoPerHour": found.nano_per_hour, "limitNanoPerHour": found.limit_nano_per_hour,
        "nodes": list(found.nodes), "method": found.method,
        "workloads": [
            {
                "workload": str(each.workload), "replicas": each.replicas, "gpus": each.gpus, "smGpus": each.sm_gpus,
                "ratePerSecond": each.rate_per_second,
            }
            for each in found.workloads
        ],
        "staying": [{"workload": str(name), "reason": reason} for name, reason in sorted(found.staying.items())],
    }  # fmt: skip


def campaigns_data(campaigns: Sequence[CampaignWorth]) -> list[dict[str, Any]]:
    return [
        {
            "model": each.model, "workloads": list(map(str, each.workloads)), "nanoPerHour": each.nano_per_hour,
            "aloneNanoPerHour": each.alone_nano_per_hour,
        }
        for each in campaigns
    ]  # fmt: skip

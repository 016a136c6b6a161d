"""Advice for language models, for people and as data: servers that do both, or prefill and decode apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.currency import name_currency
from cli.output import number, plain
from cli.pools import spell_pools, spell_servers

if TYPE_CHECKING:
    from clusters.certified.language import LanguageAdvice

BASIS = (
    "Advice for language models, by their Profiles: each at its highest rate and longest mean lengths (95 % within 2.5"
    " times the mean), as if it had all GPUs of this cluster, at the mean that is paid for one of its type. It is in no"
    " sum:"
)


def show_advice(found: Sequence[LanguageAdvice], currency: str) -> None:
    """Prints what would serve each language model."""
    print(BASIS)
    for sentence in list_advice(found, currency):
        print(plain(f"- {sentence}"))


def list_advice(found: Sequence[LanguageAdvice], currency: str) -> Iterator[str]:
    """Yields a sentence for each workload, and another where prefill and decode apart pay."""
    from simulation.sizing.language import write_figures

    for each in found:
        if each.size is None:
            yield f"{each.workload}: {each.lack}"
            continue
        (row,) = write_figures([each.size])
        yield f"{each.workload}, {number(row['ratePerSecond'])} a second: {_spell_both(row, currency)}{each.size.why}"
        if row["cheapest"] == "apart":
            pools = name_currency(spell_pools(row["apart"]), currency)
            yield f"{each.workload}: {pools}; llm-d and Dynamo run such pools"


def write_advice(found: Sequence[LanguageAdvice]) -> list[dict[str, Any]]:
    """Returns the advice as JSON's types: the figures of `gpuwright size`, or why there are none."""
    from simulation.sizing.language import write_figures

    return [
        {
            "workload": str(each.workload),
            "size": write_figures([each.size])[0] if each.size else None,
            "lack": each.lack,
        }
        for each in found
    ]


def _spell_both(row: Mapping[str, Any], currency: str) -> str:
    """Returns the servers that do both: as profiles are, and with shorter parts of prompts where that costs less."""
    texts = []
    if together := row["together"]:
        texts.append(f"{spell_servers(together['servers'])} at {number(together['costPerHour'])} an hour do both; ")
    if parts := row["parts"]:
        cheaper = f"{spell_servers(parts['servers'])} at {number(parts['costPerHour'])} an hour do"
        texts.append(f"with tokensPerIteration {parts['tokens']}, {cheaper}; ")
    return "".join(name_currency(text, currency) for text in texts)

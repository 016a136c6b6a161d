"""YAML that a person wrote, or somebody who wants the reader to end without a sentence."""

from __future__ import annotations

import pytest

from clusters.estate import Estate
from clusters.price_list import PricesRefused, read_prices
from clusters.promises import PromisesRefused, find_promises
from clusters.yaml_text import YamlRefused, load_yaml

HEXADECIMAL = "0x" + "f" * 6000  # has more digits than Python writes
BOMB = "".join(f"- &a{at} [{', '.join([f'*a{at - 1}'] * 9) if at else 'lol'}]\n" for at in range(9))


def test_an_alias_is_refused_before_it_stands_for_millions_of_values() -> None:
    with pytest.raises(YamlRefused, match=r"^it has the alias \*a0; write out what it stands for$"):
        load_yaml(BOMB)
    assert load_yaml("{glob: a*b, anchor: &a 1}") == {"glob": "a*b", "anchor": 1}


@pytest.mark.parametrize("field", ["perHour", "perGpuHour", "asOf"])
def test_a_price_of_thousands_of_digits_is_named(field: str) -> None:
    text = f"prices: [{{node: n1, perHour: -1, {field}: {HEXADECIMAL}}}]"
    with pytest.raises(PricesRefused) as refused:
        read_prices(text, "prices.yaml")
    assert all(len(fault) < 200 for fault in refused.value.faults)
    if field == "perHour":
        assert refused.value.faults == [
            "prices.yaml: prices[0]: perHour a number of thousands of digits is outside 0..1e+08"
        ]


def test_a_long_value_is_not_repeated_whole() -> None:
    estate = Estate((), (), ())
    for value in ("a" * 10_000, "shop/" + "a" * 10_000, HEXADECIMAL):
        with pytest.raises(PromisesRefused) as refused:
            find_promises(estate, f"- {{workload: {value}, latencyMs: {HEXADECIMAL}}}", "slo.yaml")
        assert len(refused.value.faults) == 2
        assert all(len(fault) < 200 for fault in refused.value.faults)

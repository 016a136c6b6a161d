"""An assessment as one page that people show: it holds its style and its pictures, runs nothing and fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import resources

from cli.estate.assessment import Assessment, join_unknown, note_unpriced, summarize_bill, write_machines, write_rows
from cli.estate.backtest import (
    attainment_text,
    share_text,
    sum_up,
    summarize_backtest,
    take_for_granted,
    write_decisions,
    write_hours,
)
from cli.estate.certified import L2_ASSUMPTIONS, summarize_campaigns, summarize_plan, write_campaigns, write_certified
from cli.estate.language import BASIS, list_advice
from cli.estate.loads import write_loads
from cli.estate.money import count_of, money
from cli.estate.pictures import SavedPart, draw_backtest, draw_levels
from cli.estate.savings import ASSUMPTIONS, note_base, share_of, summarize_limits, summarize_savings, write_savings
from cli.estate.sharing import (
    L1_ASSUMPTIONS,
    L1_BASIS,
    spell_range,
    stay_sentences,
    summarize_sharing,
    write_sharing,
)
from cli.output import TableText
from cli.views.html_text import HtmlPart, HtmlText, element, join
from clusters.bill import HOURS_A_MONTH

NUMBER = re.compile(r"(-?[0-9][0-9,.]*( %)?)?")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # of what a browser may load: nothing but the style below


def write_page(found: Assessment, origin: str, now: datetime) -> str:
    """Returns the page; `origin` names the cluster."""
    title = f"What the GPUs of {origin} cost"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        HtmlText(f"<style>\n{resources.files('cli.estate').joinpath('page.css').read_text()}</style>"),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element("p", f"{now:%Y-%m-%d %H:%M} UTC, by gpuwright assess, which only read", class_="quiet"),
        ),
        element("main", *_sections(found)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(found: Assessment) -> Iterator[HtmlText]:
    estate, bill = found.estate, found.bill
    if not estate.nodes:
        yield _section("bill", "What is paid", ["No node of this cluster shows GPUs."])
    else:
        yield _section("bill", "What is paid, and what can be saved", [summarize_bill(estate, bill)], *_overview(found))
    if found.backtest and found.backtest.hours:
        yield _section(
            "backtest",
            "What replicas by load would have done",
            summarize_backtest(found.backtest, bill.currency),
            draw_backtest(found.backtest, bill.currency),
            _table(write_hours(found.backtest), "The backtest by time", is_summed=True),
            _table(write_decisions(found.backtest), "The backtest by workload"),
            element("p", "Taken for granted:"),
            _list(take_for_granted(found.backtest)),
        )
    if found.savings and estate.nodes:
        yield _section(
            "savings",
            "What your own data shows",
            summarize_savings(bill, found.savings),
            _table(write_savings(found.savings), "Replicas by workload"),
        )
    if estate.nodes:
        yield from _plan_sections(found)
    if found.savings and estate.nodes:
        limit, wide = summarize_limits(bill, found.savings)
        yield _section("limit", "What no plan exceeds", [limit], _list(ASSUMPTIONS), element("p", wide))
    if estate.nodes:
        rows = _table(write_rows(estate, bill), "What is paid by workload", is_summed=True)
        yield _section("rows", "Who holds the GPUs", [], rows)
        machines = _table(write_machines(estate, bill), "Machines and their prices")
        yield _section("machines", "Machines, and where prices are from", [], machines)
    if found.reading and (found.reading.loads.workloads or found.reading.uses):
        loads = _table(write_loads(estate, found.reading), "Loads of workloads and use of GPUs")
        yield _section("loads", "Loads, and what GPUs do", [], loads)
    unknown = list(join_unknown(found.unknown))
    if unknown:
        yield _section("unknown", "What is not known", [], _list(unknown))


def _plan_sections(found: Assessment) -> Iterator[HtmlText]:
    """Gives what other plans than those of whole GPUs would save."""
    bill = found.bill
    if found.sharing:
        yield _section(
            "sharing",
            "What sharing GPUs could save",
            [summarize_sharing(bill, found.sharing), " ".join(L1_BASIS.split())],
            _list(L1_ASSUMPTIONS),
            *(element("p", sentence) for sentence in stay_sentences(found.sharing.staying)),
            _table(write_sharing(found.sharing), "Workloads that could share GPUs"),
        )
    if found.certified:
        yield _section(
            "certified",
            "What profiles certify",
            summarize_plan(bill, found.certified),
            _list(L2_ASSUMPTIONS),
            *(element("p", sentence) for sentence in stay_sentences(found.certified.staying)),
            _table(write_certified(found.certified), "Workloads that are planned"),
        )
    if found.language:
        yield _section(
            "language", "Servers for language models", [BASIS], _list(list(list_advice(found.language, bill.currency)))
        )
    if found.campaigns:
        yield _section(
            "campaigns",
            "Which model to profile next",
            [summarize_campaigns(bill, found.campaigns)],
            _table(write_campaigns(found.campaigns), "What campaigns are worth"),
        )


def _overview(found: Assessment) -> Iterator[HtmlText]:
    """Gives the figures that matter most, and the bill as a bar."""
    bill, savings = found.bill, found.savings
    month = f"an hour; {money(bill.nano_per_hour * HOURS_A_MONTH)} a month of {HOURS_A_MONTH} hours"
    month = ", ".join(filter(None, (month, note_unpriced(bill))))
    base = f"{note_base(bill).strip()}: ".removeprefix(": ")
    tiles = [_tile("paid", "Paid now", f"{money(bill.nano_per_hour)} {bill.currency}", month)]
    parts = []
    if savings:
        nano = savings.nano_per_hour
        text = f"{money(nano)} an hour, {money(nano * HOURS_A_MONTH)} a month: {count_of(len(savings.nodes), 'node')}"
        name = "Can be saved, shown by your own data (L0)"
        tiles.append(_tile("shown", name, share_of(nano, bill), f"{base}{text}"))
        label = f"L0, shown by your own data: {share_of(nano, bill)}"
        parts.append(SavedPart("shown", label, nano, limit_nano=savings.limit_nano_per_hour))
    if found.sharing:
        low, high = found.sharing.low_nano_per_hour, found.sharing.high_nano_per_hour
        span = f"{money(low)} to {money(high)} an hour"
        text = f"{span}; an interval, not certified, from what is paid now, so never added to L0"
        span = spell_range(low, high, bill).removeprefix("from ")
        tiles.append(_tile("honest", "Sharing GPUs could save (L1)", span, f"{base}{text}"))
        parts.append(SavedPart("honest", f"L1, by sharing GPUs: {span}", high, low))
    if found.certified and found.certified.workloads:
        nano = found.certified.nano_per_hour
        text = f"{money(nano)} an hour, {money(nano * HOURS_A_MONTH)} a month, from what is paid now"
        tiles.append(_tile("certified", "Certified with profiles (L2)", share_of(nano, bill), f"{base}{text}"))
        label = f"L2, certified with profiles: {share_of(nano, bill)}"
        parts.append(SavedPart("certified", label, nano, limit_nano=found.certified.limit_nano_per_hour))
    if savings:
        tiles.append(
            _tile("limit", "No plan of L0 saves more than", share_of(savings.limit_nano_per_hour, bill),
                  f"{base}{money(savings.limit_nano_per_hour)} an hour, under the assumptions below")
        )  # fmt: skip
    elif not found.sharing:
        tiles.append(_tile("shown", "Can be saved", "not known", "no load was measured: give --prometheus"))
    if found.backtest and found.backtest.hours:
        whole = sum_up("all", found.backtest.hours)
        saved = share_text(whole.paid_nano - whole.planned_nano, whole.paid_nano)
        text = f"saved by replicas that follow the load, in {count_of(len(found.backtest.hours), 'hour')} of the past; "
        before, after = attainment_text(whole.judged_then), attainment_text(whole.judged)
        known = f"enough replicas for {after} of requests, instead of {before}"
        text += known if before and after else "no request is known to have come"
        tiles.append(_tile("planned", "Backtest", saved, f"{base}{text}"))
    yield element("div", *tiles, class_=f"tiles of-{len(tiles)}")
    if parts and bill.nano_per_hour:
        yield draw_levels(parts, bill)


def _tile(look: str, name: str, figure: str, text: str) -> HtmlText:
    return element(
        "dl", element("dt", name), element("dd", element("strong", figure), text), class_=f"tile {look}"
    )  # fmt: skip


def _section(name: str, title: str, sentences: Sequence[str] | Iterator[str], *parts: HtmlPart) -> HtmlText:
    words = [element("p", sentence) for sentence in sentences]
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *words, *parts, aria_labelledby=f"{name}-title")


def _list(texts: Sequence[str]) -> HtmlText:
    return element("ul", *(element("li", " ".join(text.split())) for text in texts))


def _table(table: TableText, name: str, *, is_summed: bool = False) -> HtmlText:
    """Returns a table whose columns of numbers are set right; the last row may be the sum of the others.

    Without rows there is nothing to show.
    """
    if not table.rows:
        return HtmlText()
    columns = list(zip(*table.rows, strict=True))
    are_numbers = [all(NUMBER.fullmatch(cell) or cell == "unknown" for cell in column) for column in columns]
    are_words = [max(map(len, column)) > 40 for column in columns]
    looks = [
        "n" if numbers else "words" if words else None for numbers, words in zip(are_numbers, are_words, strict=True)
    ]
    looks[0] = None  # names of rows stay on the left, numbers too
    headings = zip(table.headings, looks, strict=True)
    head = element("tr", *(element("th", word, scope="col", class_=look) for word, look in headings))
    rows = []
    for index, row in enumerate(table.rows):
        first, *rest = (cell or "\N{EN DASH}" for cell in row)
        cells = [element("td", cell, class_=look) for cell, look in zip(rest, looks[1:], strict=True)]
        is_sum = is_summed and index == len(table.rows) - 1
        rows.append(
            element("tr", element("th", *_breakable(first), scope="row"), *cells, class_="sum" if is_sum else None)
        )
    whole = element("table", element("thead", head), element("tbody", join(rows)))
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=name)


def _breakable(name: str) -> Iterator[HtmlPart]:
    """Gives a name that may break after each slash."""
    for part in name.split("/")[:-1]:
        yield f"{part}/"
        yield element("wbr")
    yield name.rpartition("/")[2]

"""Writes an evaluation as one HTML page: claims first, then runs, then the drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lab.evaluate.verdicts import NO, OUT_OF_REACH, QUESTIONS

STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3em .6em;text-align:left}"
    "td.number{text-align:right;font-variant-numeric:tabular-nums}.no{color:#a00;font-weight:bold}"
    "img{max-width:100%}small{color:#555}"
)
VALUE_COLUMNS = ("paper_baseline", "best_baseline", "reproduced", "ours", "ratio")
CLAIM_COLUMNS = ("id", "metric", "paper", *QUESTIONS, *VALUE_COLUMNS)
ASKED = (
    "its planner reaches the paper's figure here",
    "ours reaches it",
    "ours is better than the paper's planner and every baseline, at no higher price and no lower attainment",
)
IN_JSON_ALONE = ("wholeMemoryPerHour",)


def evaluation_page(system: str, figures: Mapping[str, Any], drawings: Sequence[str]) -> str:
    """Returns the page; the drawings are SVG files in the same folder."""
    claims: Sequence[Mapping[str, Any]] = figures["claims"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>gpuwright evaluate {escape(system)}</title>",
        f"<style>{STYLE}</style><h1>{escape(system)}, measured here</h1>",
        f"<p>{len(claims)} claims, three questions each. <code>reproduced</code> is the paper's own planner here.</p>",
        _counts(figures["counts"]),
        _claims(claims),
        "<h2>Runs</h2>",
        _table([name for name in figures["runs"][0] if name not in IN_JSON_ALONE], figures["runs"]),
    ]
    names = [escape(name) for name in drawings]
    parts += [f'<h2>{name}</h2><img src="{name}.svg" alt="{name} by planner">' for name in names]
    return "\n".join([*parts, "</html>", ""])


def _counts(counts: Mapping[str, Mapping[str, int]]) -> str:
    told = [
        f"<li>{escape(asked)}: {escape(', '.join(f'{count} {answer}' for answer, count in counts[name].items()))}</li>"
        for name, asked in zip(QUESTIONS, ASKED, strict=True)
    ]
    return f"<ul>{''.join(told)}</ul>"


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for claim in claims:
        paper = claim["paper"] if claim["paper"] is not None else f"({claim['printed']:g})"
        cells = [_cell(value) for value in (claim["id"], claim["metric"], paper)]
        cells += [_verdict(claim["verdicts"][name]) for name in QUESTIONS]
        cells += [_cell(claim[name]) for name in VALUE_COLUMNS]
        told = (claim["because"], claim["miss"], _name_better(claim["rivals"]), claim["note"])
        sentences = " ".join(escape(sentence) for sentence in told if sentence)
        note = f"<small>{sentences} Figures: {claim['truth']}, {claim['seeds']} seeds.</small>"
        rows.append(f"<tr>{''.join(cells)}</tr><tr><td></td><td colspan={len(CLAIM_COLUMNS) - 1}>{note}</td></tr>")
    return f"<table>{_head(CLAIM_COLUMNS)}{''.join(rows)}</table>"


def _name_better(rivals: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns whom ours is not better than, and why: its price, its attainment, or their ratio."""
    found = []
    for name, rival in rivals.items():
        whys = [why for why, key in (("dearer", "ours_is_dearer"), ("attains less", "ours_attains_less")) if rival[key]]
        if rival["ours_is_better"] == NO:
            found.append(f"{name} ({' and '.join(whys) or 'by the figure'})")
    return f"Ours is not better than {', '.join(found)}." if found else ""


def _verdict(answer: str) -> str:
    return f'<td class="no">{answer}</td>' if answer in (NO, OUT_OF_REACH) else f"<td>{answer}</td>"


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    lines = "".join(f"<tr>{''.join(_cell(row[name]) for name in columns)}</tr>" for row in rows)
    return f"<table>{_head(columns)}{lines}</table>"


def _head(columns: Sequence[str]) -> str:
    names = [escape(name.replace("_", " ")) for name in columns]
    return f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {count:.6g}" for name, count in value.items() if count) or "none"
    if isinstance(value, int | float):
        return f'<td class="number">{value:.6g}</td>'
    return f"<td>{escape('' if value is None else str(value))}</td>"

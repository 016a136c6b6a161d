"""Writes an evaluation as one HTML page: claims first, then runs, then the drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3em .6em;text-align:left}"
    "td.number{text-align:right;font-variant-numeric:tabular-nums}.no{color:#a00;font-weight:bold}"
    "img{max-width:100%}small{color:#555}"
)
CLAIM_COLUMNS = ("id", "metric", "paper", "ratio", "holds", "paper_baseline", "best_baseline", "reproduced", "ours")
IN_JSON_ALONE = ("wholeMemoryPerHour",)


def evaluation_page(system: str, figures: Mapping[str, Any], drawings: Sequence[str]) -> str:
    """Returns the page; the drawings are SVG files in the same folder."""
    claims: Sequence[Mapping[str, Any]] = figures["claims"]
    held = sum(bool(claim["holds"]) for claim in claims)
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>gpuwright evaluate {escape(system)}</title>",
        f"<style>{STYLE}</style><h1>{escape(system)}, measured here</h1>",
        f"<p>{held} of {len(claims)} claims hold: the ratio of the paper's baseline to the joint planner reaches the "
        "paper's figure, and no baseline is better. <code>reproduced</code> is the paper's own planner here.</p>",
        _claims(claims),
        "<h2>Runs</h2>",
        _table([name for name in figures["runs"][0] if name not in IN_JSON_ALONE], figures["runs"]),
    ]
    names = [escape(name) for name in drawings]
    parts += [f'<h2>{name}</h2><img src="{name}.svg" alt="{name} by planner">' for name in names]
    return "\n".join([*parts, "</html>", ""])


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for claim in claims:
        verdict = "<td>holds</td>" if claim["holds"] else '<td class="no">does not hold</td>'
        cells = "".join(verdict if name == "holds" else _cell(claim[name]) for name in CLAIM_COLUMNS)
        note = f"<small>{escape(str(claim['note']))} Figures: {claim['truth']}, {claim['seeds']} seeds.</small>"
        rows.append(f"<tr>{cells}</tr><tr><td></td><td colspan={len(CLAIM_COLUMNS) - 1}>{note}</td></tr>")
    return f"<table>{_head(CLAIM_COLUMNS)}{''.join(rows)}</table>"


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    lines = "".join(f"<tr>{''.join(_cell(row[name]) for name in columns)}</tr>" for row in rows)
    return f"<table>{_head(columns)}{lines}</table>"


def _head(columns: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in columns)}</tr>"


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {count}" for name, count in value.items() if count) or "none"
    if isinstance(value, int | float):
        return f'<td class="number">{value:.6g}</td>'
    return f"<td>{escape('' if value is None else str(value))}</td>"

"""Draws the GPUs of a fleet before and after, as an SVG that is readable in light and dark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Place, Problem

WIDTH, MARGIN, GAP = 860, 12, 24
BOX_WIDTH, BOX_HEIGHT, STEP_X, STEP_Y = 13, 26, 16, 31
LABEL_HEIGHT, HEAD_HEIGHT = 17, 58
COLOURS = ("#3b82c4", "#e08a3c", "#4aa564", "#c8526b", "#8b6fc0", "#2fa3a3", "#b5933a", "#d277b2", "#6f8a9e", "#8fb43c")
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .head { font-size: 16px; font-weight: 600 }
.dim { fill: #59636e }
.gpu { fill: none; stroke: #59636e }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #9198a1 } .gpu { stroke: #9198a1 } }"""


def draw_map(problem: Problem, before: tuple[str, Plan], after: tuple[str, Plan]) -> str:
    """Returns the drawing of two plans of one fleet, each with its title, beside each other."""
    column = (WIDTH - 2 * MARGIN - GAP) // 2
    left, left_height = _draw_plan(problem, *before, x=MARGIN, width=column)
    right, right_height = _draw_plan(problem, *after, x=MARGIN + column + GAP, width=column)
    height = max(left_height, right_height) + MARGIN
    about = f"{before[0]}: {_spell(before[1])}. {after[0]}: {_spell(after[1])}."
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{about}</title>",
        f"<style>{STYLE}</style>",
        *left,
        *right,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _draw_plan(problem: Problem, title: str, plan: Plan, *, x: int, width: int) -> tuple[list[str], int]:
    """Returns the lines of one side, and where it ends."""
    by_type: dict[str, dict[Place, list[Instance]]] = defaultdict(lambda: defaultdict(list))
    for line in plan.instances:
        by_type[problem.nodes[line.node].gpu_type][line.place].append(line)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(sorted(problem.services))}
    drawn = [
        f'<text x="{x}" y="24" class="head">{title}</text>',
        f'<text x="{x}" y="43" class="dim">{_spell(plan)}</text>',
    ]
    y, in_row = HEAD_HEIGHT, width // STEP_X
    for gpu_type, gpus in sorted(by_type.items()):
        drawn.append(f'<text x="{x}" y="{y + 11}">{gpu_type} <tspan class="dim">{len(gpus)}</tspan></text>')
        y += LABEL_HEIGHT
        order = sorted(gpus.values(), key=lambda lines: min(line.service for line in lines))
        for number, lines in enumerate(order):
            drawn += _draw_gpu(lines, colours, x + number % in_row * STEP_X, y + number // in_row * STEP_Y)
        y += ((len(order) - 1) // in_row + 1) * STEP_Y
    return drawn, y


def _draw_gpu(lines: Sequence[Instance], colours: dict[str, str], x: int, y: int) -> list[str]:
    """Returns a GPU, filled from below with the shares that its instances have."""
    drawn, top = [], float(y + BOX_HEIGHT)
    for line in sorted(lines, key=lambda line: (-line.sm_percent, line.service)):
        height = BOX_HEIGHT * line.sm_percent / 100
        top -= height
        shape = f'x="{x}" y="{top:.1f}" width="{BOX_WIDTH}" height="{max(1.0, height - 1):.1f}"'
        drawn.append(f'<rect {shape} fill="{colours[line.service]}"/>')
    frame = f'x="{x - 0.5}" y="{y - 0.5}" width="{BOX_WIDTH + 1}" height="{BOX_HEIGHT + 1}"'
    return [*drawn, f'<rect {frame} class="gpu"/>']


def _spell(plan: Plan) -> str:
    assert plan.certificate
    gpus = len({line.place for line in plan.instances})
    return f"{gpus} GPUs, {plan.certificate.cost.total:.2f} an hour, everything served"

"""Writes a chart of the console as SVG: the shapes that a page puts in a figure, or a file of its own."""

from __future__ import annotations

from app.console.charts.drawing import BOTTOM, LEFT, RIGHT, ChartDrawing
from cli.views.html_text import HtmlText, element

CHART_BOX, BOX_WITH_TITLE = "0 0 600 206", "0 -26 600 232"
STYLE = (
    "text{font:14px sans-serif;fill:#555}.v{text-anchor:end}.h{text-anchor:middle}.grid{stroke:#ccc;fill:none}"
    ".line{fill:none;stroke:#1f5fa8;stroke-width:2.4;stroke-linecap:round;stroke-linejoin:round}"
    ".guess{stroke-dasharray:7 5}"
)


def list_shapes(drawing: ChartDrawing) -> list[HtmlText]:
    """Returns the title, the words, the grid, the marks of both axes and the lines."""
    ticks = "".join(f"M{LEFT:g} {y}H{RIGHT:g}" for y, _ in drawing.value_ticks)
    ticks += "".join(f"M{x} {BOTTOM:g}v5" for x, _ in drawing.time_ticks)
    shapes = [
        element("title", drawing.title),
        element("desc", drawing.sentence),
        element("path", class_="grid", d=ticks),
    ]
    shapes += [element("text", words, class_="v", x=LEFT - 8, y=y + 4) for y, words in drawing.value_ticks]
    shapes += [element("text", words, class_="h", x=x, y=198) for x, words in drawing.time_ticks]
    return [*shapes, *(element("path", class_=look, d=path) for look, path in drawing.paths)]


def write_svg(drawing: ChartDrawing) -> str:
    """Returns a file with the chart alone, its title above it."""
    title = element("text", f"{drawing.title}, {drawing.unit}", x=LEFT, y=-8)
    return "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + element(
        "svg", element("style", STYLE), *list_shapes(drawing), title, xmlns="http://www.w3.org/2000/svg",
        viewBox=BOX_WITH_TITLE, role="img",
    ) + "\n"  # fmt: skip

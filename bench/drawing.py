"""scripts/bench draw FOLDER FILES: draws the curves of results of `scripts/bench curves` as SVG files.

Each file carries its own background and colors for a light and a dark page, and a title and a description for those who
cannot see it. Stores differ in color and in the shape of their points.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

Curves = dict[str, list[dict[str, float]]]
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 84, 150, 56, 58  # the frame around the plot; names of the lines stand on the right
STORES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}
STYLE = """
.paper{fill:#fff} text{fill:#1c2430;font:14px system-ui,sans-serif} .title{font-size:17px;font-weight:600}
.grid{stroke:#d5dae1;stroke-width:1} .line{fill:none;stroke-width:2.5;stroke-linejoin:round} .four{stroke-dasharray:6 5}
.redis{stroke:#c2334d} .postgres{stroke:#1f66ad} .sqlite{stroke:#2b7d43}
.redis.point{fill:#c2334d} .postgres.point{fill:#1f66ad} .sqlite.point{fill:#2b7d43}
@media (prefers-color-scheme: dark) {
.paper{fill:#12161c} text{fill:#e6eaf0} .grid{stroke:#343c47}
.redis{stroke:#ff8196} .postgres{stroke:#7ab8f5} .sqlite{stroke:#86d598}
.redis.point{fill:#ff8196} .postgres.point{fill:#7ab8f5} .sqlite.point{fill:#86d598}
}
"""


class Chart(NamedTuple):
    """One drawing: which curves, and which figure of their points."""

    name: str
    title: str
    x_axis: str
    y_axis: str
    families: tuple[str, ...]
    figure: Callable[[dict[str, float]], float]
    log_y: bool = False


def _cpu(point: dict[str, float]) -> float:
    return point["client_us"] + point["store_us"]


def _rate(point: dict[str, float]) -> float:
    return point["per_s"]


CHARTS = (
    Chart("scale-entries", "Lock + release with more entries in the store", "entries in the store",
          "µs of CPU, client + store", ("entries",), _cpu),
    Chart("scale-waiters", "Passing one key on to more waiters", "callers that wait for the key",
          "µs of CPU per turn, client + store", ("waiters", "waiters4"), _cpu, log_y=True),
    Chart("scale-keys", "Marking more keys per call", "keys per call", "µs of CPU per key, client + store",
          ("keys",), _cpu, log_y=True),
    Chart("scale-processes", "Lock + release by more processes, two cores for all", "processes",
          "lock + release per second", ("processes",), _rate),
)  # fmt: skip


class Scale(NamedTuple):
    """Maps values to positions, linearly from 0 or by their logarithm."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, value = map(math.log10, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return round(self.begin + (value - low) / (high - low) * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if math.log10(self.high / self.low) < 1.6 else (1,)
            every = [step * 10.0**power for power in powers for step in steps]
        else:
            step = _round_up(self.high / 5)
            every = [step * number for number in range(6)]
        return [tick for tick in every if self.low <= tick <= self.high * 1.0001]


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, … that is not less."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _axis(values: Sequence[float], begin: float, end: float, log: bool) -> Scale:
    if log:
        return Scale(min(values) * 0.8, max(values) * 1.25, begin, end, log)
    return Scale(0.0, _round_up(max(values) / 5) * 5, begin, end, log)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}"{more}>{escape(text)}</text>'


def _point(store: str, x: float, y: float) -> str:
    shapes = {
        "redis": f'<circle class="redis point" cx="{x}" cy="{y}" r="4.5"/>',
        "postgres": f'<rect class="postgres point" x="{x - 4}" y="{y - 4}" width="8" height="8"/>',
        "sqlite": f'<path class="sqlite point" d="M{x},{y - 5.5}l5,9h-10z"/>',
    }
    return shapes[store]


def _grid(chart: Chart, x: Scale, y: Scale, xs: Sequence[float]) -> list[str]:
    lines = []
    for tick in y.ticks():
        lines.append(f'<path class="grid" d="M{LEFT},{y(tick)}H{WIDTH - RIGHT}"/>')
        lines.append(_text(LEFT - 8, y(tick) + 5, f"{tick:,g}", ' text-anchor="end"'))
    for tick in xs:
        lines.append(f'<path class="grid" d="M{x(tick)},{TOP}V{HEIGHT - BOTTOM}"/>')
        lines.append(_text(x(tick), HEIGHT - BOTTOM + 20, f"{tick:,.0f}", ' text-anchor="middle"'))
    lines.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, chart.x_axis, ' text-anchor="middle"'))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f' text-anchor="middle" transform="rotate(-90 16 {middle})"'
    lines.append(_text(16, middle, chart.y_axis, turned))
    return lines


def _apart(wanted: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Returns where the names of the lines stand, from top to bottom, moved if they would overlap."""
    placed: dict[str, float] = {}
    for name, (_, y) in sorted(wanted.items(), key=lambda item: item[1][1]):
        placed[name] = max(y, max(placed.values(), default=-math.inf) + 17)
    return placed


def draw(chart: Chart, curves: Curves) -> str:
    """Returns the SVG of this chart."""
    chosen = {key: curve for key, curve in curves.items() if key.partition(".")[0] in chart.families}
    xs = sorted({point["x"] for curve in chosen.values() for point in curve})
    values = [chart.figure(point) for curve in chosen.values() for point in curve]
    x = Scale(xs[0], xs[-1], LEFT + 14, WIDTH - RIGHT - 14, log=True)
    y = _axis(values, HEIGHT - BOTTOM, TOP, chart.log_y)
    parts = _grid(chart, x, y, xs)
    names: dict[str, tuple[float, float]] = {}
    for key, curve in chosen.items():
        family, _, store = key.partition(".")
        places = [(x(point["x"]), y(chart.figure(point))) for point in curve]
        dashed = " four" if family == "waiters4" else ""
        parts.append(f'<path class="line {store}{dashed}" d="M{" L".join(f"{a},{b}" for a, b in places)}"/>')
        parts += [_point(store, *place) for place in places]
        several = len(chart.families) > 1
        names[STORES[store] + ((", 4 proc." if dashed else ", 1 proc.") if several else "")] = places[-1]
    parts += [_text(names[name][0] + 12, at + 5, name) for name, at in _apart(names).items()]
    described = "; ".join(
        f"{key}: " + ", ".join(f"{point['x']:,.0f} → {chart.figure(point):,.3g}" for point in curve)
        for key, curve in chosen.items()
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(chart.title)}</title>",
        f"<desc>{escape(f'{chart.y_axis}, by {chart.x_axis}. {described}')}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        _text(LEFT - 66, 30, chart.title, ' class="title"'),
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


def read(text: str) -> Curves:
    """Returns the curves of what `scripts/bench curves` printed: on stdout or, if it was interrupted, on stderr."""
    if text.startswith("{"):
        found: Curves = json.loads(text)["curves"]
        return found
    curves: Curves = {}
    points: list[dict[str, float]] = []
    for line in text.splitlines():
        if re.fullmatch(r"\w+\.\w+", line):
            points = curves[line] = []
        elif line.startswith("    {"):
            points.append(json.loads(line))
    return {key: points for key, points in curves.items() if points}


def main(arguments: list[str]) -> int:
    """Writes a file per chart that has a curve in the results."""
    parser = argparse.ArgumentParser(prog="scripts/bench draw", description=__doc__)
    parser.add_argument("folder", type=Path, help="for instance docs/images")
    parser.add_argument("results", type=Path, nargs="+", help="what `scripts/bench curves` printed, also in parts")
    options = parser.parse_args(arguments)
    curves: Curves = {}
    for result in options.results:
        curves |= read(result.read_text())
    for chart in CHARTS:
        if {key.partition(".")[0] for key in curves} & set(chart.families):
            (options.folder / f"{chart.name}.svg").write_text(draw(chart, curves))
    return 0

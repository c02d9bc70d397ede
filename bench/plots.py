"""Small SVG plots, written by hand: the same figures give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.capacity_verdict import Suite
from bench.replay.suites import WORDS

WIDTH, PANEL_H, LEFT, RIGHT, TOP, BOTTOM = 720, 250, 60, 220, 34, 40
COLOURS = {
    "ours": "#0b6e4f",
    "ours-untold": "#74c69d",
    "scale-every": "#c8553d",
    "scale-reuse": "#e39774",
    "sequential": "#326273",
    "single": "#8d99ae",
    "oracle": "#6a4c93",
    "oracle-told": "#b185db",
}
_WASTE = (("never_ran_h", "never ran"), ("idle_h", "boot and idle"), ("lost_h", "lost"))
_SHADES = ("#c8553d", "#e9c46a", "#6a4c93")


def write_plots(suites: Sequence[Suite], folder: Path) -> list[Path]:
    """Wait against dollars, and where the waste went: a panel for each suite."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    for name, panel in (("wait-dollars", _scatter), ("waste", _bars)):
        height = PANEL_H * len(suites)
        body = "".join(panel(suite, PANEL_H * i) for i, suite in enumerate(suites))
        path = folder / f"capacity-{name}.svg"
        path.write_text(_page(height, body), encoding="utf-8")
        found.append(path)
    return found


def _page(height: int, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{body}</svg>\n'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>\n'


def _frame(top: int, title: str, across: str) -> str:
    bottom, right = top + PANEL_H - BOTTOM, WIDTH - RIGHT
    return (
        _text(LEFT, top + 20, title, bold=True)
        + f'<path d="M{LEFT} {top + TOP}V{bottom}H{right}" fill="none" stroke="#444"/>\n'
        + _text((LEFT + right) / 2, bottom + 30, across, anchor="middle")
    )


def _scatter(suite: Suite, top: int) -> str:
    points = {
        policy: (suite.mean(policy, "wait_mean_s"), suite.mean(policy, "usd_per_useful_hour"))
        for policy in suite.runs
    }
    # One that never catches up would press the others into a corner: it is named, not drawn.
    shown = {p: xy for p, xy in points.items() if xy[0] <= 5 * min(x for x, _ in points.values())}
    wide = 1.1 * max(x for x, _ in shown.values())
    low, high = min(y for _, y in shown.values()), max(y for _, y in shown.values())
    pad = 0.1 * (high - low) or 0.1
    low, high = low - pad, high + pad
    bottom, right = top + PANEL_H - BOTTOM, WIDTH - RIGHT
    body = _frame(top, suite.name, "mean wait for a GPU, s   (down: dollars per useful GPU-hour)")
    for share in (0.0, 0.5, 1.0):
        x, y = LEFT + share * (right - LEFT), bottom - share * (bottom - top - TOP)
        body += _text(x, bottom + 14, f"{share * wide:.0f}", anchor="middle")
        body += _text(LEFT - 6, y + 4, f"{low + share * (high - low):.2f}", anchor="end")
    for index, (policy, (wait, usd)) in enumerate(points.items()):
        y = top + TOP + 16 * index
        body += f'<circle cx="{right + 20}" cy="{y}" r="5" fill="{COLOURS[policy]}"/>\n'
        off = "" if policy in shown else f" ({wait:.0f} s)"
        body += _text(right + 30, y + 4, WORDS[policy] + off)
        if policy in shown:
            at_x = LEFT + wait / wide * (right - LEFT)
            at_y = bottom - (usd - low) / (high - low) * (bottom - top - TOP)
            body += (
                f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="6" fill="{COLOURS[policy]}" '
                f'fill-opacity="0.85"/>\n'
            )
    return body


def _bars(suite: Suite, top: int) -> str:
    rows = {policy: [suite.mean(policy, metric) for metric, _ in _WASTE] for policy in suite.runs}
    most = max(1.0, *(sum(row) for row in rows.values()))
    right = WIDTH - RIGHT
    step = (PANEL_H - BOTTOM - TOP) / len(rows)
    body = _frame(top, suite.name, f"wasted VM-hours, up to {most:.0f}")
    for index, (policy, row) in enumerate(rows.items()):
        y, x = top + TOP + index * step + 3, float(LEFT)
        for value, shade in zip(row, _SHADES, strict=True):
            wide = value / most * (right - LEFT)
            body += (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{step - 6:.1f}" '
                f'fill="{shade}"/>\n'
            )
            x += wide
        body += _text(right + 10, y + step / 2, f"{WORDS[policy]}: {sum(row):.0f} h")
    for index, ((_, words), shade) in enumerate(zip(_WASTE, _SHADES, strict=True)):
        x = LEFT + 260 + 90 * index
        body += f'<rect x="{x}" y="{top + 11}" width="10" height="10" fill="{shade}"/>\n'
        body += _text(x + 14, top + 20, words)
    return body

"""Bars of mean completion and of the wait of big jobs, one panel for each suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from bench.replay.queue_figures import QueueFigures

WIDTH, LEFT, RIGHT, ROW_H, HEAD_H = 720, 220, 70, 20, 40
_PLOTS: Mapping[str, tuple[str, Callable[[QueueFigures], float]]] = {
    "completion": ("mean completion, thousand seconds", lambda f: f.completion_mean / 1e3),
    "big-wait": ("mean wait of jobs with ≥ 32 GPUs, thousand seconds", lambda f: f.wait_big / 1e3),
}


def write_plots(
    suites: Mapping[str, Mapping[str, QueueFigures]], words: Mapping[str, str], folder: Path
) -> list[Path]:
    """The same figures give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, (title, value) in _PLOTS.items():
        body, top = "", 0
        for suite, runs in suites.items():
            rows = {words[policy]: value(figures) for policy, figures in runs.items()}
            body += _panel(top, f"{suite}: {title}", rows)
            top += HEAD_H + ROW_H * len(rows)
        path = folder / f"queue-{name}.svg"
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 10}" '
            f'width="{WIDTH}" height="{top + 10}" font-family="sans-serif" font-size="11">\n'
            f'<rect width="{WIDTH}" height="{top + 10}" fill="white"/>\n{body}</svg>\n',
            encoding="utf-8",
        )
        paths.append(path)
    return paths


def _panel(top: int, title: str, rows: Mapping[str, float]) -> str:
    most = max(1e-9, *rows.values())
    body = f'<text x="10" y="{top + 24}" font-weight="bold">{escape(title)}</text>\n'
    for place, (name, value) in enumerate(rows.items()):
        y = top + HEAD_H + ROW_H * place
        wide = value / most * (WIDTH - LEFT - RIGHT)
        colour = "#0b6e4f" if name.startswith("this") else "#8d99ae"
        body += (
            f'<text x="{LEFT - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>\n'
            f'<rect x="{LEFT}" y="{y + 2}" width="{wide:.1f}" height="{ROW_H - 6}" '
            f'fill="{colour}"/>\n<text x="{LEFT + wide + 5:.1f}" y="{y + 12}">{value:.1f}</text>\n'
        )
    return body

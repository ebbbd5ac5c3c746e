# SPDX-License-Identifier: Apache-2.0
"""The chart in a matplotlib figure, as data: what E2B's SDKs make their Chart objects of.

The kind of a chart is told by the artists in its axes. What is of no known kind has a title and no elements.
"""

import datetime
import itertools
import math
import re
from typing import Any

import matplotlib.dates
import numpy
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

Chart = dict[str, Any]

MAX_POINTS = 100_000
UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")
# of boxes: where two numbers that were computed apart are one
CLOSE = 1e-9


def figure_chart(figure: Figure) -> Chart | None:
    axes = figure.get_axes()
    if not any(ax.has_data() for ax in axes):
        return None
    if len(axes) == 1:
        return axes_chart(axes[0])
    title = figure._suptitle.get_text() if figure._suptitle else ""
    return {"type": "superchart", "title": title, "elements": [axes_chart(ax) for ax in axes]}


def axes_chart(ax: Axes) -> Chart:
    artists = [artist for artist in ax.get_children() if artist in ax.lines or artist in ax.collections
               or artist in ax.patches or artist in ax.images or artist in ax.tables]
    data = [artist for artist in artists if not is_rule(artist, ax)]
    for kinds, make in ((Line2D, line_chart), ((PathPatch, Line2D), box_chart), (PathCollection, scatter_chart),
                        (Wedge, pie_chart), (Rectangle, bar_chart)):
        if data and all(isinstance(artist, kinds) for artist in data):
            return make(ax, data)
    return {"type": "unknown", "title": ax.get_title() or None, "elements": []}


def is_rule(artist: Any, ax: Axes) -> bool:
    """A line from edge to edge, as by axhline: no data. In a plot of lines, all are data."""
    if not isinstance(artist, Line2D) or all(isinstance(other, (Line2D, Text)) for other in ax._children):
        return False
    return artist.get_transform() in (ax.get_xaxis_transform(which="grid"), ax.get_yaxis_transform(which="grid"))


# What charts with two axes have.

def unit(label: str) -> str | None:
    found = UNIT.search(label)
    return found and (found.group(1) or found.group(2)) or None


def planar(kind: str, ax: Axes, swapped: bool = False) -> Chart:
    labels = [ax.get_xlabel() or None, ax.get_ylabel() or None]
    if swapped:
        labels.reverse()
    x, y = labels
    return {"type": kind, "title": ax.get_title() or None, "x_label": x, "y_label": y,
            "x_unit": unit(x or ""), "y_unit": unit(y or "")}


def tick_labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def is_dates(axis: Any) -> bool:
    return isinstance(axis.get_major_formatter(), (matplotlib.dates.DateFormatter, matplotlib.dates.AutoDateFormatter,
                                                   matplotlib.dates.ConciseDateFormatter))


def axis_scale(axis: Any, ticks: list[Any], labels: list[str]) -> str:
    if is_dates(axis):
        return "datetime"
    if axis.get_scale() != "linear":
        return axis.get_scale()
    names = ticks and all(tick == i and label != str(i) for i, (tick, label) in enumerate(zip(ticks, labels)))
    return "categorical" if names else "linear"


def axis_ticks(name: str, axis: Any) -> Chart:
    ticks: list[Any] = [number(tick) for tick in axis.get_ticklocs()]
    labels = tick_labels(axis)
    if is_dates(axis):
        ticks = [matplotlib.dates.num2date(tick).isoformat() for tick in ticks]
    return {f"{name}_ticks": ticks, f"{name}_tick_labels": labels, f"{name}_scale": axis_scale(axis, ticks, labels)}


def number(value: Any) -> Any:
    value = float(value)
    return value if math.isfinite(value) else None


def coordinate(value: Any) -> Any:
    if isinstance(value, numpy.datetime64):
        return str(value.astype("datetime64[s]"))
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return value
    return number(value)


def points(xs: Any, ys: Any) -> list[list[Any]]:
    return [[coordinate(x), coordinate(y)] for x, y in itertools.islice(zip(xs, ys), MAX_POINTS)]


def point_chart(kind: str, ax: Axes, elements: list[Chart]) -> Chart:
    return planar(kind, ax) | axis_ticks("x", ax.xaxis) | axis_ticks("y", ax.yaxis) | {"elements": elements}


def given_label(label: Any, hidden: str, word: str) -> str:
    """matplotlib numbers what was given no name, in a name that begins with _."""
    label = str(label)
    return f"{word} {label[len(hidden):]}" if label.startswith(hidden) else label


def line_chart(ax: Axes, lines: list[Line2D]) -> Chart:
    return point_chart("line", ax, [
        {"label": given_label(line.get_label(), "_child", "Line"),
         "points": points(line.get_xdata(orig=True), line.get_ydata(orig=True))} for line in lines])


def scatter_chart(ax: Axes, collections: list[PathCollection]) -> Chart:
    return point_chart("scatter", ax, [
        {"label": str(collection.get_label()), "points": points(*numpy.transpose(collection.get_offsets()))}
        for collection in collections])


def pie_chart(ax: Axes, wedges: list[Wedge]) -> Chart:
    return {"type": "pie", "title": ax.get_title() or None, "elements": [
        {"label": str(wedge.get_label()), "angle": rounded(abs(wedge.theta2 - wedge.theta1)), "radius": float(wedge.r)}
        for wedge in wedges]}


def rounded(value: float) -> float:
    """Without what the arithmetic of single precision left at its end."""
    return float(f"{value:.5g}")


def bar_chart(ax: Axes, bars: list[Rectangle]) -> Chart:
    groups = [container for container in ax.containers if any(bar in bars for bar in container)]
    flat = bool(groups) and all(getattr(group, "orientation", None) == "horizontal" for group in groups)
    labels = tick_labels(ax.yaxis if flat else ax.xaxis)
    elements = [{"label": label, "group": given_label(group.get_label(), "_container", "Group"),
                 "value": number(bar.get_width() if flat else bar.get_height())}
                for group in groups for label, bar in zip(labels, group)]
    return planar("bar", ax, swapped=flat) | {"elements": elements}


# Boxes and whiskers: a box is a patch, or five lines; all else around it are lines.

def box_chart(ax: Axes, artists: list[Any]) -> Chart:
    boxes = [artist.get_path().vertices for artist in artists if isinstance(artist, PathPatch)]
    lines = [numpy.column_stack(line.get_data()).astype(float) for line in artists if isinstance(line, Line2D)]
    # A box lies when its median stands, i.e. is a line over the same x.
    lying = bool(boxes) and not any(is_across(line, boxes[0]) for line in lines)
    if lying:
        boxes, lines = [box[:, ::-1] for box in boxes], [line[:, ::-1] for line in lines]
    labels = tick_labels(ax.yaxis if lying else ax.xaxis)
    elements = [{"label": label} | box_numbers(box, lines) for label, box in zip(labels, boxes)]
    return planar("box_and_whisker", ax, swapped=lying) | {"elements": elements}


def bounds(shape: Any, i: int) -> tuple[float, float]:
    return float(shape[:, i].min()), float(shape[:, i].max())


def is_across(line: Any, box: Any) -> bool:
    """The median: as wide as the box, and level."""
    return (len(line) == 2 and abs(line[0, 1] - line[1, 1]) < CLOSE
            and all(abs(a - b) < CLOSE for a, b in zip(bounds(line, 0), bounds(box, 0))))


def box_numbers(box: Any, lines: list[Any]) -> Chart:
    (left, right), (low, high) = bounds(box, 0), bounds(box, 1)
    found: Chart = {"min": low, "first_quartile": low, "median": None, "third_quartile": high, "max": high,
                    "outliers": []}
    for line in lines:
        if not len(line) or not left - CLOSE <= line[0, 0] <= right + CLOSE:
            continue
        bottom, top = bounds(line, 1)
        if is_across(line, box):
            found["median"] = bottom
        elif len(line) == 2 and line[0, 0] == line[1, 0] and abs(top - low) < CLOSE:
            found["min"] = bottom
        elif len(line) == 2 and line[0, 0] == line[1, 0] and abs(bottom - high) < CLOSE:
            found["max"] = top
        elif (line[:, 0] == line[0, 0]).all() and (bottom > found["third_quartile"] or top < found["first_quartile"]):
            found["outliers"] += [float(y) for y in line[:, 1]]
    return found

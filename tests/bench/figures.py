# SPDX-License-Identifier: Apache-2.0
"""Percentiles, and the tables that people read."""


def percentile(values, share):
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def median(values):
    return percentile(values, 50)


def number(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return str(value)


def table(head, rows):
    """Columns as wide as need be: the first to the left, numbers to the right."""
    cells = [head] + [[number(value) if not isinstance(value, str) else value for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])])
             for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)

# SPDX-License-Identifier: Apache-2.0
"""What E2B's SDKs know of a result beyond Jupyter's own forms: the data of a table, the chart in a figure, and
lists and dictionaries as JSON.

Libraries are looked up, never imported: an object of theirs is only there when they are.
"""

import datetime
import json
import math
import sys
from typing import Any

from IPython.core.formatters import BaseFormatter, DisplayFormatter, JSONFormatter
from traitlets import ObjectName, Unicode

# A table beyond it is shown, but does not go over the wire a second time.
MAX_CELLS = 100_000
MAX_JSON = 1 << 20


def plain(value: Any) -> Any:
    """For json.dumps: of what it does not know."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def plain_cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    pandas = sys.modules["pandas"]
    if value is pandas.NaT or value is pandas.NA:
        return None
    return plain_cell(plain(value)) if hasattr(value, "dtype") and not getattr(value, "shape", ()) else plain(value)


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, obj: Any) -> Any:
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(obj, getattr(pandas, "DataFrame", ())):
            return super().__call__(obj)
        if obj.size > MAX_CELLS:
            return None
        return {str(name): [plain_cell(value) for value in obj.iloc[:, i].tolist()]
                for i, name in enumerate(obj.columns)}


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __call__(self, obj: Any) -> Any:
        figure_module = sys.modules.get("matplotlib.figure")
        if figure_module is None or not isinstance(obj, figure_module.Figure):
            return super().__call__(obj)
        from . import charts
        try:
            return charts.figure_chart(obj)
        except Exception:  # an artist that is not what it seems: the picture is there all the same
            return None


class ListFormatter(JSONFormatter):
    def __call__(self, obj: Any) -> Any:
        if type(obj) not in (list, dict):
            return super().__call__(obj)
        try:
            text = json.dumps(obj, default=plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return None
        return json.loads(text) if len(text) <= MAX_JSON else None


def register(display: DisplayFormatter) -> None:
    own: tuple[BaseFormatter, ...] = (DataFormatter(parent=display), ChartFormatter(parent=display),
                                      ListFormatter(parent=display))
    for formatter in own:
        display.formatters[formatter.format_type] = formatter

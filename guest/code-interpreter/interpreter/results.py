# SPDX-License-Identifier: Apache-2.0
"""The lines that an execution's stream is made of, from the messages of a Jupyter kernel."""

import json
import math
from collections.abc import Mapping
from typing import Any

Event = dict[str, Any]

FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


def count(execution_count: int) -> Event:
    return {"type": "number_of_executions", "execution_count": execution_count}


def stream(name: str, text: str, timestamp: str) -> Event:
    return {"type": "stderr" if name == "stderr" else "stdout", "text": text, "timestamp": timestamp}


def error(name: str, value: str, traceback: str = "") -> Event:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def kernel_error(content: Mapping[str, Any]) -> Event:
    return error(str(content.get("ename", "")), str(content.get("evalue", "")),
                 "\n".join(str(line) for line in content.get("traceback") or []))


def result(bundle: Mapping[str, Any], main: bool) -> Event:
    event: Event = {"type": "result"}
    extra = {}
    for kind, value in bundle.items():
        if kind not in FIELDS:
            extra[kind] = value
        elif value is not None and value != {}:
            event[FIELDS[kind]] = value
    if isinstance(event.get("text"), str):
        event["text"] = without_quotes(event["text"])
    for name in ("png", "jpeg", "pdf"):
        if isinstance(event.get(name), str):
            # R breaks the lines of its base64.
            event[name] = event[name].replace("\n", "")
    return event | {"extra": extra, "is_main_result": main}


def without_quotes(text: str) -> str:
    """A string is shown as itself, not as its literal."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


KEEPALIVE: Event = {"type": "keepalive"}
END: Event = {"type": "end_of_execution"}


def line(event: Event) -> bytes:
    """One line, of ASCII alone: a client may decode it in pieces."""
    try:
        text = json.dumps(event, allow_nan=False)
    except ValueError:
        text = json.dumps(without_nan(event), allow_nan=False)
    return text.encode("ascii") + b"\n"


def without_nan(value: Any) -> Any:
    """JSON has no word for what is not a number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return value

# SPDX-License-Identifier: Apache-2.0
"""The kernels of ours. Nobody debugs in them, and ipykernel imports all of the debugger that it finds."""

import sys

sys.modules["debugpy"] = None  # type: ignore[assignment]
import ipykernel.debugger  # noqa: E402,F401

del sys.modules["debugpy"]

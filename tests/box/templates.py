# SPDX-License-Identifier: Apache-2.0
"""What templates and snapshots have on disk, for tests of what is left."""

import os

from cubetest import wait_for

# by several templates
SHARED = (".kernels", ".initramfs", ".roots", ".inputs", ".layers")


def stored():
    """All of it but for what is shared."""
    found = []
    for kind in ("templates", "templates/names/0", "snapshots"):
        path = os.path.join("/var/lib/cubed", kind)
        found += sorted(f"{kind}/{name}" for name in os.listdir(path) if name not in SHARED) if os.path.isdir(path) else []
    return found


def stored_at_rest():
    """Once what others removed is gone."""
    wait_for("removals to end", lambda: not any("/." in name for name in stored()))
    return stored()

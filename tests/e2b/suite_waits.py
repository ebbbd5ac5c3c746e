# SPDX-License-Identifier: Apache-2.0
"""For E2B's own tests, a plugin of pytest: what they wait until a server of theirs in a sandbox is up takes longer by the factor,
too. Not where the end of a sandbox's life is what they wait for, and not in the SDK."""

import asyncio
import os
import sys
import time

FACTOR = int(os.environ["CUBE_FACTOR"])


def scaled(sleep):
    def longer(seconds, *more):
        file = sys._getframe(1).f_code.co_filename
        return sleep(seconds * FACTOR if "/tests/" in file and not file.endswith("_timeout.py") else seconds, *more)
    return longer


time.sleep = scaled(time.sleep)
asyncio.sleep = scaled(asyncio.sleep)

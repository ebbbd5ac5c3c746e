# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers that are the same in every copy of this machine, until they are seeded anew.

/etc/cube/fork.d/50-code-interpreter sends the signal before a copy takes its first request. Python runs the
handler in the main thread, before that begins another cell.
"""

import os
import random
import signal
import sys

SIGNAL = signal.SIGRTMIN + 3


def reseed(*_: object) -> None:
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch:
        torch.seed()
    ssl = sys.modules.get("ssl")
    if ssl:
        ssl.RAND_add(os.urandom(32), 32.0)


def install() -> None:
    signal.signal(SIGNAL, reseed)

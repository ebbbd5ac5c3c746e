# SPDX-License-Identifier: Apache-2.0
"""Environment variables that hold for one cell."""

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def temporary_environment(env: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

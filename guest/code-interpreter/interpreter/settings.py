# SPDX-License-Identifier: Apache-2.0
"""What main was told, for all parts of the server."""

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    runtime_dir: str
    cwd: str
    envd: str
    start_timeout: float
    interrupt_timeout: float
    keepalive: float
    max_contexts: int
    max_output: int
    max_request: int
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def kernel_env(self) -> dict[str, str]:
        return dict(self.environment)

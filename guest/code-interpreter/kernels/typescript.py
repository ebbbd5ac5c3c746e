# SPDX-License-Identifier: Apache-2.0
"""TypeScript: JavaScript whose types are left out, unchecked."""

from .app import launch_app
from .javascript import JavaScriptKernel


class TypeScriptKernel(JavaScriptKernel):
    cell_language = "typescript"


def launch() -> None:
    launch_app(TypeScriptKernel)

# SPDX-License-Identifier: Apache-2.0
"""Pictures of Pillow, as E2B's clients expect them: one that a cell saves to a file by its name, or shows, is a result of the cell.

Pillow is not imported for it: what is done to its module is done when a cell imports it.
"""

import importlib.abc
import importlib.machinery
import sys
from typing import Any

from IPython.display import display


def publish(picture: Any) -> None:
    try:
        png = picture._repr_png_()
    except ValueError:  # PNG has no word for such colours
        return
    if png:
        display({"image/png": png, "text/plain": repr(picture)}, raw=True)


def change(module: Any) -> None:
    saved = module.Image.save

    def save(self: Any, fp: Any, format: Any = None, **params: Any) -> None:
        saved(self, fp, format, **params)
        if isinstance(fp, str):
            publish(self)

    def show(self: Any, title: Any = None, **options: Any) -> None:
        publish(self)

    module.Image.save = save
    module.Image.show = show


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname == "PIL.Image" else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            change(module)
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    sys.meta_path.insert(0, Finder())

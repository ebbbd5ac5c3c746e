# SPDX-License-Identifier: Apache-2.0
"""The languages: how the kernel of each is started, and how a cell's environment variables get into it."""

import json
import pathlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parents[1]
# Out of memory, the kernel that took it is to go, not the server. And no kernel outlives the server.
PREFIX = ("choom", "-n", "500", "--", "setpriv", "--pdeathsig", "KILL", "--")

ALIASES = {"py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash"}

# What programs begin with, so that the first cell that needs it need not load it. Nothing of it is seen in cells.
PYTHON_WARM_UP = """
def _warm_up():
    import io
    try:
        import numpy, pandas
        import matplotlib.pyplot as pyplot
        from IPython.core.formatters import DisplayFormatter
    except ImportError:
        return
    numpy.random.random(1)
    get_ipython().display_formatter.format(pandas.DataFrame({"a": [1]}))
    figure = pyplot.figure()
    figure.add_subplot().plot([1, 2], label="a")
    figure.savefig(io.BytesIO(), format="png")
    pyplot.close(figure)
_warm_up()
del _warm_up
"""


class UnknownLanguage(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f'Language "{name}" is not supported; there are: {", ".join(LANGUAGES)}')


@dataclass(frozen=True)
class Language:
    name: str
    command: tuple[str, ...]
    # Unix sockets where the kernel knows them: nothing of it is then in reach from outside of the process' user.
    transport: str = "ipc"
    # A kernel of ours takes the variables with the request, and waits when it sends too fast. R's is told the
    # variables by code before and after, and drops what is too much.
    own: bool = True
    warm_up: str = ""

    @property
    def argv(self) -> list[str]:
        return [*PREFIX, *self.command]


def own_kernel(name: str, warm_up: str = "") -> Language:
    return Language(name, (sys.executable, str(HERE / "start-kernel"), name, "-f", "{connection_file}"), warm_up=warm_up)


LANGUAGES: Mapping[str, Language] = {language.name: language for language in (
    own_kernel("python", warm_up=PYTHON_WARM_UP),
    own_kernel("javascript"),
    own_kernel("typescript"),
    Language("r", ("R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"),
             transport="tcp", own=False),
    own_kernel("bash"),
)}


def find(name: str | None) -> Language:
    wanted = (name or "python").strip().lower()
    try:
        return LANGUAGES[ALIASES.get(wanted, wanted)]
    except KeyError:
        raise UnknownLanguage(wanted) from None


def r_string(text: str) -> str:
    # JSON's strings are R's, but for characters beyond the first plane.
    return '"' + "".join(f"\\U{ord(c):08x}" if ord(c) > 0xffff else json.dumps(c)[1:-1] for c in text) + '"'


def r_set_env(env: Mapping[str, str]) -> str:
    names = ", ".join(r_string(name) for name in env)
    values = ", ".join(f"{name} = {r_string(value)}" for name, value in env.items())
    return f"options(cube.env = Sys.getenv(c({names}), unset = NA, names = TRUE)); Sys.setenv({values})"


R_RESTORE_ENV = """local({
    old <- getOption("cube.env")
    options(cube.env = NULL)
    Sys.unsetenv(names(old)[is.na(old)])
    old <- old[!is.na(old)]
    if (length(old)) do.call(Sys.setenv, as.list(old))
})"""

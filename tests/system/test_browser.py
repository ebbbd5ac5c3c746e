# SPDX-License-Identifier: Apache-2.0
"""Chromium in a sandbox, from the template of its recipe, asked from the host at the sandbox's address."""

import json
import os
import urllib.request

import pytest

from cubetest import created, ctl, ctl_ok, prop
from labhost import build_recipe

pytestmark = [pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="its template takes minutes here: --long"),
              pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def browser(host):
    build_recipe("browser")
    with created("--template", "browser", "--timeout", "2h") as sandbox_id:
        yield sandbox_id
    ctl("template", "rm", "browser")


def url(sandbox_id):
    return f"http://{prop(sandbox_id, 'NetworkAddress')}:9222"


def test_it_answers_at_the_sandboxs_address(browser):
    with urllib.request.urlopen(f"{url(browser)}/json/version", timeout=600) as answer:
        version = json.load(answer)
    assert "Chrome/" in version["Browser"] and version["webSocketDebuggerUrl"].startswith(f"ws://{prop(browser, 'NetworkAddress')}:9222/")


# Of all that read pages; the first bracket keeps the shell itself out.
RENDERERS = """
for pid in $(pgrep -f -- '[-]-type=renderer'); do
    echo $(ps -o user= $pid) $(grep ^Seccomp: /proc/$pid/status) $(grep -c -a -e --no-sandbox /proc/$pid/cmdline)
done
"""


def test_it_is_in_a_sandbox_of_its_own(browser):
    """No user but its own, no --no-sandbox, and filters on the calls of what reads pages."""
    lines = ctl_ok("exec", browser, "--", "sh", "-c", RENDERERS, timeout=600).splitlines()
    assert lines and set(lines) == {"user Seccomp: 2 0"}

# SPDX-License-Identifier: Apache-2.0
"""Chromium in a sandbox, from the template of its recipe, commanded from the host at the sandbox's address: by HTTP, and by
Playwright as it is on npm, with the node of the recipe's own root file system."""

import base64
import json
import os
import urllib.request

import pytest

from cubetest import created, ctl, ctl_ok, prop, run
from labhost import PLACE, build_recipe
from png import pixels

pytestmark = [pytest.mark.skipif(os.environ.get("CUBE_LONG") != "1", reason="its template takes minutes here: --long"),
              pytest.mark.timeout(3600)]

PLAYWRIGHT = """
const { chromium } = require('/mnt/node_modules/playwright-core');
(async () => {
    const browser = await chromium.connectOverCDP(process.argv[2], { timeout: 900000 });
    const page = await browser.contexts()[0].newPage();
    page.setDefaultTimeout(900000);
    await page.setViewportSize({ width: 200, height: 100 });
    await page.setContent('<body style="margin:0;background:#00f"><div style="width:100px;height:100px;background:#f00">');
    const text = await page.evaluate(() => document.body.firstChild.clientWidth + ' ' + navigator.webdriver);
    const picture = await page.screenshot({ timeout: 900000 });
    console.log(JSON.stringify({ text, picture: picture.toString('base64') }));
    await browser.close();
})();
"""


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


def test_a_page_and_a_screenshot_by_playwright(browser):
    out = run("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "-p", f"RootImage={PLACE}/browser.squashfs",
              "-p", "MountAPIVFS=yes", "-p", "PrivateTmp=yes", "-p", f"BindReadOnlyPaths={PLACE}/playwright:/mnt",
              "node", "-", url(browser), input=PLAYWRIGHT.encode(), check=True, timeout=3000).stdout
    said = json.loads(out)
    assert said["text"] == "100 false"
    width, height, rows = pixels(base64.b64decode(said["picture"]))
    assert (width, height) == (200, 100)
    assert rows[50][50][:3] == (255, 0, 0) and rows[50][150][:3] == (0, 0, 255)

# SPDX-License-Identifier: Apache-2.0
"""What a sandbox's names lead to, in domain mode: servers in it, and its files."""

import os
import ssl
import urllib.error
import urllib.request

from lib import create, go, until

SANDBOX = False


def status(url, **headers):
    """Of an answer to somebody who has an address, and trusts whom the SDK trusts."""
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as e:
        return e.code, b""


async def test_names_lead_to_servers_and_files():
    s = await go(create(timeout=3600, network={"allow_public_traffic": False}))
    await go(s.files.write("index.html", "served"))
    await go(s.commands.run("python3 -m http.server 8000", background=True, timeout=0))
    url = f"https://{s.get_host(8000)}/"
    assert url == f"https://8000-{s.sandbox_id}.{os.environ['E2B_DOMAIN']}/"
    token = {"E2b-Traffic-Access-Token": s.traffic_access_token}
    await until(lambda: status(url, **token)[0] != 502)
    assert status(url, **token) == (200, b"served") and status(url)[0] == 403
    link = await go(s.download_url("index.html"))
    assert status(link) == (200, b"served") and status(link.replace("index", "other"))[0] == 401
    assert await go(s.kill()) is True and status(url, **token)[0] == 502

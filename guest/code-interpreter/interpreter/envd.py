# SPDX-License-Identifier: Apache-2.0
"""The environment variables of the sandbox, which its envd knows. Without an envd there are none."""

import json

from tornado.httpclient import AsyncHTTPClient, HTTPClientError

MAX_SIZE = 1 << 20


async def sandbox_env(url: str, access_token: str | None) -> dict[str, str]:
    if not url:
        return {}
    headers = {"X-Access-Token": access_token} if access_token else {}
    try:
        response = await AsyncHTTPClient(force_instance=True, max_body_size=MAX_SIZE).fetch(
            f"{url}/envs", headers=headers, connect_timeout=10, request_timeout=10)
        values = json.loads(response.body)
    except (HTTPClientError, OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, str)}

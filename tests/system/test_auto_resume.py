# SPDX-License-Identifier: Apache-2.0
"""A web server in a Linux guest that is paused answers whoever asks it."""

import concurrent.futures

import pytest

from cubetest import ctl_ok, events, options, prop, sandbox, wait_for
from linuxguest import begin_server, server_get


@pytest.fixture(scope="module")
def server(shared):
    """Resumed by who asks it."""
    pid = begin_server(shared)
    sandbox(shared).SetAutoResume(True)
    yield shared
    sandbox(shared).SetAutoResume(False)
    ctl_ok("exec", shared, "--", "kill", pid)


def pause(sandbox_id):
    sandbox(sandbox_id).Pause(options({}))
    assert prop(sandbox_id, "State") == "paused" and prop(sandbox_id, "Parked")


def test_a_request_is_answered_by_the_guest_that_it_resumes(server):
    before = events(server).count("resumed")
    pause(server)
    # Its clock is right when it hears of the request.
    assert server_get(server)[1] < 1
    # The guest may have answered before cubed has heard that it goes on.
    wait_for("it to run", lambda: prop(server, "State") == "running")
    assert events(server).count("resumed") == before + 1


def test_twenty_requests_at_once_resume_it_once(server):
    before = events(server).count("resumed")
    pause(server)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert all(off < 1 for _, off in pool.map(lambda _: server_get(server), range(20)))
    wait_for("it to run", lambda: prop(server, "State") == "running")
    assert events(server).count("resumed") == before + 1

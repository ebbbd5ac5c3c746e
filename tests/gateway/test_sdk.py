# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDK for Python, unmodified, against cube-gateway: what it asks of the control plane."""

import os
import subprocess
import textwrap

import pytest

pytestmark = pytest.mark.skipif("CUBE_E2B_SDK" not in os.environ,
                                reason="CUBE_E2B_SDK names no environment with e2b; dev/test makes one")


@pytest.fixture(scope='module')
def sdk(started):
    with started.on_loopback() as url:
        key = started.key()

        def run(code):
            env = {'PATH': os.environ['PATH'], 'E2B_API_URL': url, 'E2B_SANDBOX_URL': url, 'E2B_API_KEY': key}
            result = subprocess.run([os.environ['CUBE_E2B_SDK'] + '/bin/python', '-c', textwrap.dedent(code)], env=env, text=True,
                                    timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert result.returncode == 0, result.stdout
        yield run
        for i in started.host.ids():
            started.host.ctl('kill', i)


def test_life(sdk):
    sdk("""
        from datetime import datetime, timezone
        from e2b import Sandbox, SandboxState, SandboxQuery
        sandbox = Sandbox.create('python', timeout=60, metadata={'k 1': 'v&=2', 'ü': 'x'})
        info = sandbox.get_info()
        assert info.sandbox_id == sandbox.sandbox_id and info.state == SandboxState.RUNNING, info
        assert info.metadata == {'k 1': 'v&=2', 'ü': 'x'} and info.name == 'python', info
        assert 0 < (info.end_at - datetime.now(timezone.utc)).total_seconds() < 61
        sandbox.set_timeout(600)
        assert (sandbox.get_info().end_at - datetime.now(timezone.utc)).total_seconds() > 500

        other = Sandbox.create('python')
        page = Sandbox.list(query=SandboxQuery(metadata={'k 1': 'v&=2'}))
        assert [s.sandbox_id for s in page.next_items()] == [sandbox.sandbox_id] and not page.has_next
        page = Sandbox.list(limit=1)
        first = page.next_items()
        assert [s.sandbox_id for s in first] == [other.sandbox_id] and page.has_next
        assert [s.sandbox_id for s in page.next_items()] == [sandbox.sandbox_id] and not page.has_next

        sandbox.pause()
        assert sandbox.get_info().state == SandboxState.PAUSED
        assert [s.sandbox_id for s in Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()] == [sandbox.sandbox_id]
        again = Sandbox.connect(sandbox.sandbox_id, timeout=120)
        assert again.sandbox_id == sandbox.sandbox_id and again.get_info().state == SandboxState.RUNNING
        assert sandbox.kill() is True and sandbox.kill() is False and Sandbox.kill('nonexistingsandbox') is False
        assert other.kill() is True
    """)


def test_errors(sdk):
    sdk("""
        from e2b import AuthenticationException, NotFoundException, Sandbox, SandboxException
        def fails(kind, call, text=''):
            try:
                call()
            except kind as e:
                assert text in str(e), e
            else:
                raise SystemExit('did not fail')
        fails(SandboxException, lambda: Sandbox.create('nosuch'), "404: template 'nosuch' not found")
        fails(SandboxException, lambda: Sandbox.create('python', timeout=10**6), '400: Timeout cannot be greater than')
        fails(SandboxException, lambda: Sandbox.create('python', envs={'A-B': '1'}), "400: 'A-B' is no name of a variable")
        fails(NotFoundException, lambda: Sandbox.connect('nonexistingsandbox'))
        fails(AuthenticationException, lambda: Sandbox.create('python', api_key='e2b_' + '0' * 40), '401')
    """)


def test_network_and_snapshots(sdk):
    sdk("""
        from e2b import Sandbox
        sandbox = Sandbox.create('python', network={'allow_out': ['1.1.1.1'], 'deny_out': ['0.0.0.0/0']})
        closed = Sandbox.create('python', allow_internet_access=False)
        snapshot = sandbox.create_snapshot()
        copy = Sandbox.create(snapshot.snapshot_id)
        assert copy.sandbox_id != sandbox.sandbox_id
        assert snapshot.snapshot_id in [s.snapshot_id for s in Sandbox.list_snapshots().next_items()]
        for s in (sandbox, closed, copy):
            assert s.kill() is True
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False
    """)

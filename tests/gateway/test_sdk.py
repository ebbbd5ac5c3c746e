# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDK for Python, unmodified, against cube-gateway and the guests that it has made."""

import os
import subprocess
import textwrap

import pytest

from router import routed

pytestmark = pytest.mark.skipif("CUBE_E2B_SDK" not in os.environ,
                                reason="CUBE_E2B_SDK names no environment with e2b; dev/test makes one")

# As in tests/e2b/py/run.py: threads of the SDK abort an interpreter that ends, now and then.
LEAVE = '\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n'


@pytest.fixture(scope='module')
def sdk(started):
    with started.on_loopback() as url, routed(started.host) as guests:
        key = started.key()

        def run(code):
            env = {'PATH': os.environ['PATH'], 'E2B_API_URL': url, 'E2B_SANDBOX_URL': guests, 'E2B_API_KEY': key}
            result = subprocess.run([os.environ['CUBE_E2B_SDK'] + '/bin/python', '-c', textwrap.dedent(code) + LEAVE], env=env, text=True,
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


def test_a_whole_life_with_its_guest(sdk):
    """What E2B's first example does, and what it keeps through pauses."""
    sdk("""
        from e2b import CommandExitException, Sandbox, TimeoutException
        sandbox = Sandbox.create('python', envs={'GREETING': 'hi'}, timeout=120)
        assert sandbox.is_running()
        assert sandbox.commands.run('echo $GREETING $E2B_SANDBOX_ID').stdout == f'hi {sandbox.sandbox_id}\\n'
        try:
            sandbox.commands.run('exit 3')
            raise SystemExit('did not fail')
        except CommandExitException as e:
            assert e.exit_code == 3
        lines = []
        sandbox.commands.run('for i in 1 2 3; do echo $i; done', on_stdout=lines.append)
        assert ''.join(lines) == '1\\n2\\n3\\n', lines

        sleeper = sandbox.commands.run('sleep 1000', background=True)
        again = Sandbox.connect(sandbox.sandbox_id, timeout=300)
        assert sleeper.pid in [p.pid for p in again.commands.list()]
        end = again.get_info().end_at
        Sandbox.connect(sandbox.sandbox_id, timeout=5)
        assert again.get_info().end_at == end

        sandbox.pause()
        assert not sandbox.is_running()
        resumed = Sandbox.connect(sandbox.sandbox_id)
        assert resumed.is_running() and resumed.commands.run('echo $GREETING').stdout == 'hi\\n'
        assert sleeper.pid in [p.pid for p in resumed.commands.list()]
        assert resumed.commands.kill(sleeper.pid) is True

        resumed.set_timeout(600)
        assert resumed.kill() is True
        assert not resumed.is_running()
        try:
            resumed.commands.run('true')
            raise SystemExit('a killed one ran')
        except TimeoutException:
            pass
    """)


def test_files_of_a_guest(sdk, tmp_path):
    sdk(f"""
        from e2b import NotFoundException, Sandbox
        sandbox = Sandbox.create('python')
        path = '{tmp_path}/d/f ü.txt'
        assert sandbox.files.write(path, 'hello').path == path
        assert sandbox.files.read(path) == 'hello'
        assert [e.name for e in sandbox.files.list('{tmp_path}/d')] == ['f ü.txt']
        sandbox.files.remove(path)
        try:
            sandbox.files.read(path)
            raise SystemExit('it is there')
        except NotFoundException:
            pass
        assert sandbox.kill() is True
    """)


def test_many_in_one_process(sdk):
    """Their clients share connections, and each has its own token."""
    sdk("""
        import asyncio
        from e2b import AsyncSandbox
        async def one(n):
            sandbox = await AsyncSandbox.create('python', envs={'N': str(n)})
            results = await asyncio.gather(*(sandbox.commands.run('echo $N $E2B_SANDBOX_ID') for _ in range(3)))
            assert {r.stdout for r in results} == {f'{n} {sandbox.sandbox_id}\\n'}, results
            assert await sandbox.kill() is True
        async def main():
            await asyncio.gather(*(one(n) for n in range(8)))
        asyncio.run(main())
    """)


def test_forks_and_copies_have_guests_of_their_own(sdk):
    sdk("""
        from e2b import Sandbox
        sandbox = Sandbox.create('python')
        forks = sandbox.fork(count=2)
        copy = Sandbox.create(sandbox.create_snapshot().snapshot_id)
        every = [sandbox, copy, *forks]
        assert len({s.sandbox_id for s in every}) == 4
        for s in every:
            assert s.commands.run('echo $E2B_SANDBOX_ID').stdout == s.sandbox_id + '\\n'
        for s in every:
            assert s.kill() is True
    """)


def test_a_reboot(sdk):
    sdk("""
        from e2b import Sandbox
        sandbox = Sandbox.create('python')
        sleeper = sandbox.commands.run('sleep 1000', background=True)
        sandbox.pause(keep_memory=False)
        again = Sandbox.connect(sandbox.sandbox_id)
        assert sleeper.pid not in [p.pid for p in again.commands.list()]
        sleeper = again.commands.run('sleep 1000', background=True)
        again.pause()
        again = Sandbox.connect(sandbox.sandbox_id, on_resume='reboot')
        assert sleeper.pid not in [p.pid for p in again.commands.list()]
        assert again.commands.run('echo $E2B_SANDBOX_ID').stdout == sandbox.sandbox_id + '\\n'
        assert sandbox.commands.run('echo same token').exit_code == 0
        assert again.kill() is True
    """)

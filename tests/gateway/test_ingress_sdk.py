# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDKs, unmodified, in domain mode: by TLS and the name of each sandbox, through haproxy."""

import os
import shutil
import subprocess
import textwrap

import pytest

from ingress import DOMAIN, HTTPS, Ingress
from test_sdk import LEAVE

pytestmark = pytest.mark.skipif("CUBE_E2B_SDKS" not in os.environ,
                                reason="CUBE_E2B_SDKS names no directory with E2B's SDKs; dev/test makes one")

# Every name leads to haproxy.
DNS = """
from dnslib import A, RR
from dnslib.server import BaseResolver, DNSServer
class Here(BaseResolver):
    def resolve(self, request, handler):
        reply = request.reply()
        if request.q.qtype == 1:
            reply.add_answer(RR(request.q.qname, 1, rdata=A('127.0.0.1'), ttl=60))
        return reply
server = DNSServer(Here(), address='127.0.0.1', port=53)
print('ready', flush=True)
server.start()
"""
# Names are asked of it, in a mount namespace of the client's own.
CLIENT = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
# Goes on when its client has seen the first line, and has made a file that is in the guest, too.
WAITING = 'echo first; until test -e "$GO"; do sleep 0.1; done; echo second'
PYTHON = f"""
import sys
from e2b import *
WAITING = {WAITING!r}
def reachable(sandbox):
    print('link', sandbox.sandbox_id, flush=True)
    assert sys.stdin.readline() == 'done\\n'
    return sandbox
def kill(sandbox):
    print('kill', sandbox.sandbox_id, flush=True)
"""
JS = f"""
const WAITING = {WAITING!r}
""" + """
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { readFileSync, writeFileSync } from 'node:fs'
const e2b = `${process.env.CUBE_SDK}/node_modules/e2b`
const { Sandbox, TimeoutError } = await import(`${e2b}/${JSON.parse(readFileSync(`${e2b}/package.json`)).module}`)
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
async function reachable(sandbox) {
        console.log('link', sandbox.sandboxId)
        assert.equal((await answers.next()).value, 'done')
        return sandbox
}
function kill(sandbox) {
        console.log('kill', sandbox.sandboxId)
}
"""


@pytest.fixture(scope='module')
def ingress(started):
    if not shutil.which('haproxy'):
        pytest.skip('no haproxy here')
    started.restart(f'Domain={DOMAIN}:{HTTPS}')
    ingress = Ingress(started)
    dns = None
    try:
        ingress.start()
        dns = subprocess.Popen(ingress.inside('/usr/bin/python3', '-c', DNS), stdout=subprocess.PIPE)
        assert dns.stdout.readline() == b'ready\n'
        yield ingress
    finally:
        if dns:
            dns.kill()
            dns.wait()
            dns.stdout.close()
        ingress.end()
        started.restart()


@pytest.fixture
def sdk(ingress, tmp_path):
    """Runs a program. Each sandbox that it wants to reach is given its link, and those that it wants killed by the host are."""
    (tmp_path / 'resolv.conf').write_text('nameserver 127.0.0.1\noptions timeout:5\n')
    env = {'PATH': os.environ['PATH'], 'E2B_DOMAIN': f'{DOMAIN}:{HTTPS}', 'SSL_CERT_FILE': str(ingress.ca),
           'NODE_EXTRA_CA_CERTS': str(ingress.ca), 'E2B_API_KEY': ingress.gateway.key()}

    def run(*argv, **variables):
        inside = ingress.inside('sh', '-c', CLIENT, tmp_path / 'resolv.conf', *argv)
        client = subprocess.Popen(['unshare', '--mount', *inside], env=env | variables, text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in iter(client.stdout.readline, ''):
            what, sandbox = line.split()
            if what == 'kill':
                ingress.gateway.host.ctl('kill', sandbox)
                continue
            assert what == 'link'
            ingress.link(sandbox)
            client.stdin.write('done\n')
            client.stdin.flush()
        _, errors = client.communicate(timeout=120)
        assert client.returncode == 0, errors
    yield run
    for i in ingress.gateway.host.ids():
        ingress.gateway.host.ctl('kill', i)


@pytest.fixture
def python(sdk):
    program = os.environ['CUBE_E2B_SDKS'] + '/python-newest/bin/python'
    return lambda code, **kwargs: sdk(program, '-c', PYTHON + textwrap.dedent(code) + LEAVE, **kwargs)


@pytest.fixture
def js(sdk, tmp_path):
    def run(code, **kwargs):
        (tmp_path / 'test.mjs').write_text(JS + textwrap.dedent(code) + 'process.exit(0)\n')
        sdks = os.environ['CUBE_E2B_SDKS']
        sdk(f'{sdks}/node', tmp_path / 'test.mjs', CUBE_SDK=f'{sdks}/node-newest', **kwargs)
    return run


def test_life(python, tmp_path):
    python("""
        import os
        sandbox = reachable(Sandbox.create('python', timeout=60))
        assert sandbox.get_host(8000) == f'8000-{sandbox.sandbox_id}.cube.test:8443'
        assert sandbox.is_running()
        lines = []
        def go_on(line):
            lines.append(line)
            open(os.environ['GO'], 'w').close()
        result = sandbox.commands.run(WAITING, envs={'GO': os.environ['GO']}, on_stdout=go_on)
        assert (result.exit_code, lines) == (0, ['first\\n', 'second\\n'])
        sandbox.files.write('/tmp/ingress-sdk', 'x' * 1000000)
        assert sandbox.files.read('/tmp/ingress-sdk') == 'x' * 1000000
        sandbox.commands.run('rm /tmp/ingress-sdk')
        assert sandbox.kill() and not sandbox.is_running()
    """, GO=str(tmp_path / 'go'))


def test_a_sandbox_that_is_killed_under_a_command_is_told_as_that(python):
    python("""
        sandbox = reachable(Sandbox.create('python', timeout=60))
        lines = []
        def begun(line):
            lines.append(line)
            kill(sandbox)
        try:
            sandbox.commands.run('echo begun; sleep 60', on_stdout=begun, timeout=50)
        except TimeoutException as e:
            assert 'sandbox was killed or reached its end of life' in str(e), e
        else:
            raise AssertionError('it goes on')
        assert lines == ['begun\\n']
    """)


def test_a_server_in_a_sandbox_without_public_traffic(python):
    python("""
        import time, urllib.error, urllib.request
        sandbox = reachable(Sandbox.create('python', network={'allow_public_traffic': False}))
        sandbox.commands.run('python3 -m http.server 8000', background=True, cwd='/tmp')
        url = f'https://{sandbox.get_host(8000)}/'
        def get(**headers):
            while True:  # until the server listens
                try:
                    return urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status
                except urllib.error.HTTPError as e:
                    if e.code != 502:
                        return e.code
                    time.sleep(0.02)
        assert get() == 403
        assert get(**{'e2b-traffic-access-token': sandbox.traffic_access_token}) == 200
    """)


def test_life_in_javascript(js, tmp_path):
    js("""
        const sandbox = await reachable(await Sandbox.create('python', { timeoutMs: 60000 }))
        assert.equal(sandbox.getHost(8000), `8000-${sandbox.sandboxId}.cube.test:8443`)
        assert.ok(await sandbox.isRunning())
        const lines = [], { GO } = process.env
        const goOn = (line) => { lines.push(line); writeFileSync(GO, '') }
        const result = await sandbox.commands.run(WAITING, { envs: { GO }, onStdout: goOn })
        assert.deepEqual([result.exitCode, lines], [0, ['first\\n', 'second\\n']])
        await sandbox.files.write('/tmp/ingress-sdk', 'x'.repeat(1000000))
        assert.equal((await sandbox.files.read('/tmp/ingress-sdk')).length, 1000000)
        await sandbox.commands.run('rm /tmp/ingress-sdk')
        assert.ok(await sandbox.kill())
        assert.ok(!(await sandbox.isRunning()))
    """, GO=str(tmp_path / 'go'))


def test_a_sandbox_that_is_killed_under_a_command_is_told_as_that_in_javascript(js):
    js("""
        const sandbox = await reachable(await Sandbox.create('python', { timeoutMs: 60000 }))
        const call = sandbox.commands.run('echo begun; sleep 60', { timeoutMs: 50000, onStdout: () => kill(sandbox) })
        await assert.rejects(call, (e) => e instanceof TimeoutError && e.message.includes('sandbox was killed or reached its end of life'))
    """)

# SPDX-License-Identifier: Apache-2.0
"""When the others on the bus are not there."""


def test_without_cubed_it_says_so(alone):
    client = alone.client()
    for method, path in (('GET', '/v2/sandboxes'), ('GET', '/sandboxes/i0123456789012'), ('GET', '/templates')):
        assert 'cubed is not running here' in client.fails(method, path, 503)
    assert 'cubed is not running here' in client.fails('POST', '/v2/sandboxes', 503, {'templateID': 'python'})
    # It is being restarted, mostly.
    assert client.raw('GET', '/v2/sandboxes').headers['Retry-After'] == '1'


def test_without_a_bus_it_ends_to_be_started_again(alone):
    bus = alone.host.processes[0]
    bus.kill()
    bus.wait()
    assert alone.process.wait(60) == 1
    alone.process = None


def test_without_a_socket_it_does_not_start(alone):
    status, log = alone.run_to_the_end()
    assert status == 78 and 'One listening socket is to be passed in, 0 were' in log


def test_it_says_which_part_of_the_configuration_it_can_not_read(alone):
    parts = alone.dir / 'gateway.conf.d'
    part = parts / 'own.conf'
    part.mkdir(parents=True)
    status, log = alone.run_to_the_end()
    assert status == 78 and f'The configuration {part} could not be read: Is a directory' in log, log
    part.rmdir()
    parts.rmdir()
    parts.write_text('')
    status, log = alone.run_to_the_end()
    assert status == 78 and f'The configuration {parts} could not be read: Not a directory' in log, log


def test_a_host_key_of_another_size_is_none(alone):
    good = alone.host_key.read_bytes()
    assert len(good) == 32
    for bad in (b'', good[:31], good + b'\0'):
        alone.host_key.write_bytes(bad)
        status, log = alone.run_to_the_end()
        assert status == 78 and 'The key of this host could not be read' in log

# SPDX-License-Identifier: Apache-2.0
"""The machine and its agent, with tests/payload as the guest: claim, power-off, peers that come and go
or don't read."""

import errno
import signal
import time

import pytest

from test_devices import POWEROFF, Guest, parse_frame
from vmm import (AGENT_PING, AGENT_READY, FLAG_REPLY, Op, Reason, Refused, State, Tag, frame, tlv, u64)

OK = 1


@pytest.fixture
def guest(vmm):
    return Guest(vmm).wait_ready()


def ping(number):
    return tlv(Tag.FRAME, frame(AGENT_PING, id=number))


def memory_bytes(pid):
    with open(f'/proc/{pid}/statm') as f:
        return int(f.read().split()[1]) * 4096


def test_agent_requests_before_the_agent(vmm):
    guest = Guest(vmm, 'silent')
    with pytest.raises(Refused) as info:
        guest.peer.request(Op.AGENT, ping(5))
    assert info.value.errno == errno.ENOTCONN


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGRTMIN + 4])
def test_signal_powers_the_guest_off(vmm, guest, number):
    vmm.process.send_signal(number)
    assert guest.peer.event(Op.EVENT_EXIT).number(Tag.REASON) == Reason.POWEROFF
    assert vmm.wait()[1][0] == Reason.POWEROFF
    # The answer to the VMM's own request is not passed on.
    assert not [m for m in guest.peer.events if m.op == Op.EVENT_AGENT]


def test_stop_powers_the_guest_off(vmm, guest):
    guest.peer.request(Op.STOP, u64(Tag.TIMEOUT_USEC, 60_000_000))
    assert vmm.wait()[1][0] == Reason.POWEROFF


def test_stop_of_a_guest_that_only_says_yes(vmm):
    guest = Guest(vmm, 'ignore-poweroff').wait_ready()
    guest.peer.request(Op.STOP, u64(Tag.TIMEOUT_USEC, 200_000))
    assert vmm.wait()[1][0] == Reason.STOP_TIMEOUT


def test_stop_before_the_agent_is_there(vmm):
    # Asked as soon as it introduces itself.
    guest = Guest(vmm)
    guest.peer.request(Op.STOP, u64(Tag.TIMEOUT_USEC, 60_000_000))
    assert vmm.wait()[1][0] == Reason.POWEROFF


def test_hello_tells_of_the_agent(vmm, guest):
    guest.peer.close()
    peer = vmm.connect()
    m = peer.request(Op.HELLO)
    assert m.number(Tag.STATE) == State.RUNNING
    kind, _, records = parse_frame(m.get(Tag.FRAME))
    assert kind == AGENT_READY
    assert records == guest.ready


def test_answers_without_a_peer_are_dropped(vmm, guest):
    for n in range(1000, 1010):
        guest.peer.send(Op.AGENT, ping(n))
    guest.peer.close()
    time.sleep(0.3)

    guest.peer = vmm.connect()
    guest.peer.request(Op.HELLO)
    guest.peer.request(Op.AGENT, ping(2000))
    answers = []
    # Those that were longer in coming are for who is there by then.
    while 2000 not in answers:
        kind, number, _ = parse_frame(guest.peer.event(Op.EVENT_AGENT).get(Tag.FRAME))
        assert kind == OK
        answers.append(number)
    assert set(answers) - {2000} <= set(range(1000, 1010))


def test_a_peer_that_does_not_read(vmm, guest):
    """Replies and events pile up to a bound; then requests wait, and nothing is lost."""
    peer = guest.peer
    sent = 0
    before = memory_bytes(vmm.process.pid)
    peer.socket.settimeout(1)
    try:
        while sent < 50000:
            peer.send(Op.AGENT, ping(10000 + sent), seq=10000 + sent)
            sent += 1
    except TimeoutError:
        pass
    assert sent < 50000
    assert memory_bytes(vmm.process.pid) - before < 4 << 20

    # The queue to the guest may be full as well; that is said, and only then is there no answer.
    peer.socket.settimeout(60)
    accepted, replies, answers = [], [], []
    while len(replies) < sent or len(answers) < len(accepted):
        m = peer.receive()
        assert m is not None
        if m.flags & FLAG_REPLY:
            replies.append(m.seq)
            if m.error == 0:
                accepted.append(m.seq)
            else:
                assert m.error == -errno.EAGAIN
        else:
            answers.append(parse_frame(m.get(Tag.FRAME))[1])
    assert replies == list(range(10000, 10000 + sent))
    assert sorted(answers) == accepted
    assert accepted

    kind, _ = guest.call(AGENT_PING)
    assert kind == OK


def test_poweroff_by_request_is_the_guests_own(vmm, guest):
    kind, _ = guest.call(POWEROFF)
    assert kind == OK
    assert vmm.wait()[1][0] == Reason.POWEROFF

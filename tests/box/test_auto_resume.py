# SPDX-License-Identifier: Apache-2.0
"""A paused sandbox is resumed by what its owner sends it; and what is open to one that stops is ended."""

import concurrent.futures
import contextlib
import errno
import glob
import os
import shutil
import socket
import time

import dbus
import pytest

from cubetest import crash, created, cubed_pid, descriptors, events, journal, options, prop, run, sandbox, wait_for
from network import BPF_DIR, address, answers, echoes, element, kill_netd, links, netd_stopped, pool_is_full, serving, udp
from snapshots import put, sector
from test_network_stack import StackGuest, netlab, tap_of
from test_pause import KEPT, pause, resume
from test_restart import restart
from test_snapshot_failures import SNAPSHOTS

# Refused by the filter, without a route, or begun while the links went
ENDED = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ECONNABORTED)


@contextlib.contextmanager
def waking(*more):
    """It serves, and is resumed by who asks it something."""
    with created("--timeout", "1h", "--auto-resume", *more) as sandbox_id, serving(sandbox_id):
        echoes(udp(address(sandbox_id)))
        yield sandbox_id


def wakes(sandbox_id):
    """The very first datagram is answered."""
    before = events(sandbox_id).count("resumed")
    with udp(address(sandbox_id)) as s:
        assert answers(s)
    # The guest may have answered before cubed has heard that it goes on.
    wait_for("it to run", lambda: prop(sandbox_id, "State") == "running")
    assert events(sandbox_id).count("resumed") == before + 1
    assert journal(sandbox_id, "CUBE_EVENT=resumed")[-1]["CUBE_TRIGGER"] == "connection"


def fails(sandbox_id, port=80):
    """A connection to it ends at once; with what."""
    with socket.socket() as s:
        s.settimeout(30)
        return s.connect_ex((address(sandbox_id), port))


def no_time_out(sandbox_id):
    assert fails(sandbox_id) in ENDED
    assert prop(sandbox_id, "State") in ("paused", "failed")


def parked(sandbox_id):
    wait_for("its links", lambda: f"cube{link_number(sandbox_id)}" in links())


def link_number(sandbox_id):
    return int(address(sandbox_id).split(".")[2]) * 256 + int(address(sandbox_id).split(".")[3])


def test_the_first_datagram_resumes_it_and_is_answered(clean):
    with waking() as sandbox_id:
        put(sandbox_id, 30, "kept")
        for _ in range(3):
            pause(sandbox_id)
            assert prop(sandbox_id, "VMMPID") == 0 and prop(sandbox_id, "Parked")
            wakes(sandbox_id)
        assert sector(sandbox_id, 30) == "kept"


def test_twenty_at_once_resume_it_once(clean):
    with waking() as sandbox_id:
        pause(sandbox_id)
        sockets = [udp(address(sandbox_id)) for _ in range(20)]
        for i, s in enumerate(sockets):
            s.settimeout(60)
            s.send(str(i).encode())
        assert [s.recv(100) for s in sockets] == [str(i).encode() for i in range(20)]
        wait_for("it to run", lambda: prop(sandbox_id, "State") == "running")
        assert events(sandbox_id).count("resumed") == 1


def test_a_connection_is_answered_by_the_guest_that_was_resumed_for_it(clean):
    with created("--timeout", "1h", "--auto-resume") as sandbox_id:
        pause(sandbox_id)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            job = pool.submit(lambda: socket.create_connection((address(sandbox_id), 80), timeout=60))
            wait_for("it to be resumed", lambda: prop(sandbox_id, "State") == "running")
            servers, tap = [], tap_of(int(prop(sandbox_id, "VMMPID")))
            guest = netlab.Guest(tap, ready=lambda netns: servers.append(netns.listen("0.0.0.0", 80)))
            servers[0].settimeout(60)
            with job.result() as client, servers[0], servers[0].accept()[0] as inside:
                inside.sendall(b"hello")
                assert client.recv(10) == b"hello"
            guest.close()
            os.close(tap)


def test_whoever_may_not_connect_does_not_wake_it(clean):
    with waking() as sandbox_id:
        pause(sandbox_id)
        script = f"import os,socket; os.setuid(12345); print(socket.socket().connect_ex(('{address(sandbox_id)}', 80)))"
        assert int(run("python3", "-c", script, check=True).stdout) == errno.ECONNREFUSED
        assert prop(sandbox_id, "State") == "paused"
        wakes(sandbox_id)


def test_without_it_connections_are_refused_at_once(clean):
    with created("--timeout", "1h") as sandbox_id:
        pause(sandbox_id)
        no_time_out(sandbox_id)
        resume(sandbox_id)


def test_without_its_memory_it_is_left_alone(clean):
    with waking() as sandbox_id:
        assert not prop(sandbox_id, "Parked")
        pause(sandbox_id, memory=False)
        assert not prop(sandbox_id, "Parked")
        no_time_out(sandbox_id)


def test_it_can_be_set_at_any_time(clean):
    with waking("--auto-resume=no") as sandbox_id:
        assert not prop(sandbox_id, "AutoResume")
        pause(sandbox_id)
        no_time_out(sandbox_id)
        sandbox(sandbox_id).SetAutoResume(True)
        assert prop(sandbox_id, "AutoResume")
        parked(sandbox_id)
        watched(sandbox_id)
        wait_for("it to be written down", lambda: b'"auto-resume":1' in open(f"{KEPT}/{sandbox_id}/sandbox.json", "rb").read().replace(b" ", b""))
        wakes(sandbox_id)
        pause(sandbox_id)
        sandbox(sandbox_id).SetAutoResume(False)
        no_time_out(sandbox_id)
        resume(sandbox_id)


def remaining(sandbox_id):
    return prop(sandbox_id, "Deadline") / 1e6 - time.time()


def test_it_lives_for_a_while_then(clean):
    """As long as after any resume, but at least AutoResumeTimeout=."""
    with waking() as sandbox_id:
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(120_000_000))
        pause(sandbox_id)
        wakes(sandbox_id)
        assert remaining(sandbox_id) > 130 and prop(sandbox_id, "TimeoutUSec") == 120_000_000
        pause(sandbox_id)
        resume(sandbox_id)
        assert journal(sandbox_id, "CUBE_EVENT=resumed")[-1]["CUBE_TRIGGER"] == "request"
        assert remaining(sandbox_id) <= 120
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(7200_000_000))
        pause(sandbox_id)
        wakes(sandbox_id)
        assert remaining(sandbox_id) > 3600


def test_a_time_out_parks_it(clean):
    with waking("--on-timeout", "pause") as sandbox_id:
        sandbox(sandbox_id).SetTimeout(dbus.UInt64(100_000))
        wait_for("its lifetime to be over", lambda: prop(sandbox_id, "State") == "paused")
        wakes(sandbox_id)


@pytest.mark.parametrize("again", [restart, crash])
def test_it_is_parked_again_after_a_restart(template, again):
    with waking() as sandbox_id:
        pause(sandbox_id)
        again()
        parked(sandbox_id)
        wait_for("the restarted cubed to watch it", lambda: parked_by_cubed() == 1)
        wakes(sandbox_id)
        again()
        pause(sandbox_id)
        wakes(sandbox_id)


def said(sandbox_id, text):
    """In the journal, of this one."""
    wait_for(f"cubed to say that {text}",
             lambda: run("journalctl", "-u", "cubed.service", "--no-pager", "-g", f"{sandbox_id}: .*{text}").returncode == 0)


def watched(sandbox_id):
    """By cubed, as the filter has it: from then on nobody who connects is refused."""
    number = link_number(sandbox_id).to_bytes(4, "little")
    wait_for("it to be parked", lambda: int.from_bytes((element("sandboxes", number) or bytes(16))[8:12], "little") == 4)


def test_it_is_parked_again_when_the_host_has_booted(clean_again):
    """What a reboot leaves is what is on the disk: no links, no maps, nothing below /run."""
    with waking() as sandbox_id:
        pause(sandbox_id)
        before = address(sandbox_id)
        run("systemctl", "stop", "cubed.service", check=True)
        assert not links() and not os.path.exists(BPF_DIR)
        shutil.rmtree("/run/cubed/sandbox")
        run("systemctl", "start", "cubed.service", check=True)
        parked(sandbox_id)
        watched(sandbox_id)
        assert prop(sandbox_id, "Parked") and address(sandbox_id) == before
        wakes(sandbox_id)
        pause(sandbox_id)
        wakes(sandbox_id)


def test_it_stays_parked_when_cube_netd_is_killed(clean):
    with waking() as sandbox_id:
        pause(sandbox_id)
        kill_netd()
        wakes(sandbox_id)
        kill_netd()
        pause(sandbox_id)
        wakes(sandbox_id)


def test_nobody_needs_cube_netd_to_wake_it(clean):
    with waking() as sandbox_id:
        pause(sandbox_id)
        with netd_stopped():
            wakes(sandbox_id)


def test_links_that_somebody_takes_away_are_made_again(clean):
    with waking() as sandbox_id:
        pause(sandbox_id)
        parked(sandbox_id)
        run("ip", "link", "del", f"cube{link_number(sandbox_id)}", check=True)
        said(sandbox_id, "somebody took its links away while it was paused")
        parked(sandbox_id)
        watched(sandbox_id)
        wakes(sandbox_id)


def test_one_that_runs_has_others_once_it_was_paused(clean):
    with waking() as sandbox_id:
        run("ip", "link", "del", f"cube{link_number(sandbox_id)}", check=True)
        said(sandbox_id, "it has no network until it has been paused and resumed")
        pause(sandbox_id)
        resume(sandbox_id)
        echoes(udp(address(sandbox_id)))
        pause(sandbox_id)
        wakes(sandbox_id)


def parked_by_cubed():
    """Taps that cubed holds beside those of its pool."""
    return list(descriptors(cubed_pid()).values()).count("/dev/net/tun") - 16


def test_a_resume_that_fails_is_not_tried_again_by_the_next_one(clean):
    with waking() as sandbox_id:
        before = set(glob.glob(f"{SNAPSHOTS}/*/state"))
        pause(sandbox_id)
        [state] = set(glob.glob(f"{SNAPSHOTS}/*/state")) - before
        whole = open(state, "rb").read()
        with open(state, "r+b") as f:
            f.write(b"damage")
        assert fails(sandbox_id) in (errno.ECONNABORTED, errno.ECONNREFUSED, errno.EHOSTUNREACH)
        wait_for("it to have failed", lambda: prop(sandbox_id, "State") == "failed")
        assert not prop(sandbox_id, "Parked")
        no_time_out(sandbox_id)
        assert len(journal(sandbox_id, "CUBE_EVENT=resume-failed")) == 1
        with open(state, "wb") as f:
            f.write(whole)
        resume(sandbox_id)
        pause(sandbox_id)
        wakes(sandbox_id)


@pytest.mark.parametrize("how", ["Kill", "Pause", "time-out"])
def test_open_connections_of_the_host_end(clean, how):
    with created("--timeout", "1h") as sandbox_id:
        peer, guest = address(sandbox_id), StackGuest(sandbox_id)
        with guest.stack.netns.listen("0.0.0.0", 80) as server, \
                socket.create_connection((peer, 80), timeout=30) as client, server.accept()[0]:
            if how == "time-out":
                sandbox(sandbox_id).SetTimeout(dbus.UInt64(100_000))
            else:
                getattr(sandbox(sandbox_id), how)(*([] if how == "Kill" else [options({})]), timeout=60)
            with pytest.raises((ConnectionAbortedError, ConnectionResetError)):
                client.recv(10)
        guest.close()
        with socket.socket() as s:
            s.settimeout(30)
            assert s.connect_ex((peer, 80)) in ENDED


def test_one_that_is_killed_while_it_is_parked_leaves_nothing(clean):
    pool_is_full()
    with waking() as sandbox_id:
        pause(sandbox_id)
        parked(sandbox_id)
    pool_is_full()

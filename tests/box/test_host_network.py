# SPDX-License-Identifier: Apache-2.0
"""What a host can be like, what cubectl check says of it, and what is left on it when the service has ended."""

import contextlib
import os
import subprocess

import pytest

from cubetest import created, ctl, helper_pid, manager, run, wait_for

FIREWALL = "table ip fw { chain f { type filter hook forward priority filter; policy drop; }; }"


def check():
    """Name -> (level, finding, advice)"""
    return {str(name): (str(level), str(finding), str(advice)) for name, level, finding, advice in manager().CheckHost()}


def sysctl(key, *value):
    path = "/proc/sys/net/" + key
    for v in value:
        with open(path, "w", encoding="ascii") as f:
            f.write(str(v))
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def state():
    """All that cubed changes on a host for its network."""
    return {
        "links": sorted(name for name in os.listdir("/sys/class/net") if name.startswith("cube")),
        "tables": run("nft", "list", "tables").stdout,
        "pins": sorted(os.listdir("/sys/fs/bpf")),
        "forwarding": [sysctl(f"{key}/forwarding") for key in ("ipv4/conf/up0", "ipv6/conf/all")],
    }


@contextlib.contextmanager
def config(text):
    path = "/etc/cubed/cubed.conf.d/60-network.conf"
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write("[Network]\n" + text)
        run("systemctl", "restart", "cubed.service", check=True)
        yield
    finally:
        os.unlink(path)
        run("systemctl", "restart", "cubed.service", check=True)


@contextlib.contextmanager
def stopped(unit):
    run("systemctl", "stop", unit, check=True)
    try:
        yield
    finally:
        run("systemctl", "start", unit, check=True)


def make_link(name, address):
    """To nowhere."""
    for line in (f"link add {name} type veth peer name {name}-peer", f"address add {address}/24 dev {name}", f"link set {name}-peer up",
                 f"link set {name} up"):
        run("ip", *line.split(), check=True)


@pytest.fixture
def uplink(template):
    make_link("up0", "198.51.100.1")
    run("ip", "route", "add", "default", "via", "198.51.100.2", check=True)
    wait_for("cubed to see it", lambda: "uplink up0" in check()["network"][1])
    yield
    run("ip", "link", "del", "up0")
    wait_for("cubed to miss it", lambda: check()["network"][0] == "warning")


def test_a_host_without_a_way_out_has_sandboxes_all_the_same(template):
    wait_for("cubed to say so", lambda: check()["network"][0] == "warning" and "no way to the internet" in check()["network"][1])
    with created():
        pass


def test_all_is_well(uplink):
    wait_for("cube-resolver to be seen", lambda: check()["resolver"][0] == "ok")
    found = check()
    assert {name: found[name][0] for name in ("bpf-fs", "network", "firewall", "forwarding", "rp-filter", "resolver")} == {
        name: "ok" for name in ("bpf-fs", "network", "firewall", "forwarding", "rp-filter", "resolver")}


def test_a_firewall_in_the_way_is_told_and_the_advice_is_right(uplink):
    run("nft", FIREWALL, check=True)
    try:
        level, finding, advice = check()["firewall"]
        assert (level, finding) == ("failed", "what sandboxes send is dropped by ip fw f")
        commands = advice.split(". ")[0].split("; ")
        assert len(commands) == 2 and all(c.startswith("nft insert rule ip fw f ") for c in commands)
        for command in commands:
            subprocess.run(command, shell=True, check=True)
        assert check()["firewall"][0] == "ok"
    finally:
        run("nft", "delete table ip fw", check=True)


def test_forwarding_that_was_turned_off_is_told(uplink):
    sysctl("ipv4/ip_forward", 1, 0)
    level, finding, _ = check()["forwarding"]
    assert level == "failed" and finding == "up0 does not forward IPv4"
    run("systemctl", "restart", "cubed.service", check=True)
    wait_for("cube-netd to be set up", lambda: check()["network"][0] == "ok")
    assert check()["forwarding"][0] == "ok"


def test_two_ways_out_and_a_strict_reverse_path_filter(uplink):
    make_link("up1", "192.0.2.1")
    before = sysctl("ipv4/conf/up0/rp_filter")
    try:
        run("ip", "route", "add", "default", "via", "192.0.2.2", "metric", "500", check=True)
        sysctl("ipv4/conf/up0/rp_filter", 1)
        assert check()["rp-filter"][0] == "warning"
        sysctl("ipv4/conf/up0/rp_filter", 2)
        assert check()["rp-filter"][0] == "ok"
    finally:
        sysctl("ipv4/conf/up0/rp_filter", before)
        run("ip", "link", "del", "up1")


def test_a_resolver_that_does_not_run_is_told(template):
    with stopped("cube-resolver.service"):
        wait_for("cubed to miss it", lambda: check()["resolver"][0] == "warning")
    wait_for("cube-resolver to be seen", lambda: check()["resolver"][0] == "ok")


def test_without_the_bpf_file_system_no_sandbox_is_made_and_the_error_says_why(template):
    try:
        with stopped("cubed.service"):
            run("umount", "/sys/fs/bpf", check=True)
        wait_for("cubed to notice", lambda: check()["network"][0] == "failed" and "has not answered" not in check()["network"][1])
        assert "no BPF file system is mounted" in check()["network"][1]
        assert check()["bpf-fs"][0] == "failed"
        r = ctl("create")
        assert r.returncode != 0 and b"no BPF file system is mounted at /sys/fs/bpf" in r.stderr
    finally:
        if not os.path.ismount("/sys/fs/bpf"):
            run("mount", "-t", "bpf", "-o", "mode=0700", "bpf", "/sys/fs/bpf", check=True)
        run("systemctl", "restart", "cubed.service", check=True)
    with created():
        pass


def test_ipv6_that_is_asked_for_and_not_there(template):
    sysctl("ipv6/conf/all/disable_ipv6", 1)
    try:
        with created():
            pass
        with config("Network6=fd3c:cbed::/64\n"):
            wait_for("cubed to be told", lambda: "no IPv6 for the sandbox network fd3c:cbed::/64" in check()["network"][1])
            assert b"no IPv6" in ctl("create").stderr
    finally:
        sysctl("ipv6/conf/all/disable_ipv6", 0)


def test_nothing_of_the_network_is_left_when_the_service_has_ended(uplink):
    with stopped("cubed.service"):
        without = state()
        assert (without["links"], without["forwarding"]) == ([], ["0", "0"])
        assert b"cubed" not in without["tables"] and "cubed" not in without["pins"]
    with config("Network6=fd3c:cbed::/64\n"), created():
        during = state()
        assert during["forwarding"] == ["1", "1"] and b"inet cubed" in during["tables"]
    with stopped("cubed.service"):
        assert state() == without
    wait_for("cubed to be set up", lambda: check()["network"][0] == "ok")


def test_a_sandbox_that_runs_on_keeps_its_filter_until_it_ends(uplink):
    with created("--timeout", "1h") as sandbox_id:
        wait_for("slots", lambda: len(state()["links"]) > 2)
        with stopped("cubed.service"):
            # those of the pool went
            wait_for("its link to be the last", lambda: len(state()["links"]) == 3)
            left = state()
            assert b"inet cubed" in left["tables"] and "cubed" in left["pins"] and left["forwarding"][0] == "1"
        assert sandbox_id in ctl("list").stdout.decode()
        with stopped("cubed.service"):
            run("systemctl", "stop", f"cube-{sandbox_id}.scope", check=True)
            wait_for("its link to go", lambda: len(state()["links"]) == 2)
        with stopped("cubed.service"):
            assert state()["links"] == [] and "cubed" not in state()["pins"]


def test_cube_netd_can_do_little(template):
    """It runs as root, with what it needs and no more."""
    with open(f"/proc/{helper_pid('cube-netd')}/status", encoding="ascii") as f:
        status = dict(line.split(":", 1) for line in f if ":" in line)
    chown, net_admin, sys_admin, perfmon, bpf = 0, 12, 21, 38, 39
    wanted = sum(1 << cap for cap in (chown, net_admin, sys_admin, perfmon, bpf))
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == wanted
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"


def test_settings_of_the_kernel_are_out_of_cubeds_reach(template):
    pid = helper_pid("cube-netd")
    for path, flags in (("/proc/sys/kernel/core_pattern", "ro"), ("/proc/sys/net/ipv4/ip_forward", "rw"), ("/sys", "ro"), ("/sys/fs/bpf", "rw")):
        out = run("nsenter", f"--mount=/proc/{pid}/ns/mnt", "findmnt", "-n", "-o", "VFS-OPTIONS", "--target", path, check=True)
        assert out.stdout.decode().split(",")[0] == flags, path

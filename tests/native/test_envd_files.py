# SPDX-License-Identifier: Apache-2.0
"""cube-agent as an ordinary process. Its envd: whole files, up and down."""

import base64
import gzip
import hashlib
import json
import os
import pathlib
import pwd
import select
import socket
import time
import urllib.parse

import pytest

from agentlib import FREEZE, THAW, pattern, sanitized, until
from envdlib import Envd

TOKEN = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"


@pytest.fixture(scope="module")
def envd(shared):
    return Envd(shared, TOKEN, USER="root")


@pytest.fixture
def work(envd, tmp_path):
    os.chmod(tmp_path, 0o755)
    return tmp_path


def target(path=None, **query):
    if path is not None:
        query["path"] = str(path)
    return "/files?" + urllib.parse.urlencode(query)


def get(envd, path, headers=None, **query):
    return envd.request("GET", target(path, **query), headers=headers)


def put(envd, path, data, headers=None, **query):
    return envd.json("POST", target(path, **query), data, headers={"Content-Type": "application/octet-stream", **(headers or {})})


def form(*parts, boundary="----formdata-undici-052233830347"):
    """name, filename or None, bytes of each."""
    out = b""
    for name, filename, data in parts:
        file = b"" if filename is None else b'; filename="%s"' % filename.encode()
        out += (b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\nContent-Type: application/octet-stream\r\n\r\n%s\r\n'
                % (boundary.encode(), name.encode(), file, data))
    return out + b"--%s--\r\n" % boundary.encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def post(envd, path, *parts, **query):
    body, headers = form(*parts)
    return envd.json("POST", target(path, **query), body, headers=headers)


def entry(path, **more):
    return {"path": str(path), "name": os.path.basename(path), "type": "file", **more}


def sign(path, operation, user, token, expiration=None):
    text = ":".join([path, operation, user, token, *([] if expiration is None else [str(expiration)])])
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


# Download

def test_a_file(envd, work):
    data = pattern(3_000_000)
    (work / 'a "b".bin').write_bytes(data)
    status, headers, got = get(envd, work / 'a "b".bin')
    assert (status, got) == (200, data)
    assert headers["Content-Length"] == "3000000" and headers["Vary"] == "Accept-Encoding"
    assert headers["Content-Disposition"] == 'inline; filename="a \\"b\\".bin"'
    status, headers, got = envd.request("HEAD", target(work / 'a "b".bin'))
    assert (status, headers["Content-Length"], got) == (200, "3000000", b"")


def test_an_empty_one_and_one_of_proc(envd, work):
    (work / "empty").write_bytes(b"")
    status, headers, got = get(envd, work / "empty")
    assert (status, headers["Content-Length"], got) == (200, "0", b"")
    status, headers, got = get(envd, "/proc/self/status")
    assert status == 200 and headers["Transfer-Encoding"] == "chunked" and got.startswith(b"Name:\tagent-harness")


@pytest.mark.parametrize("field, first, last", [
    ("bytes=0-0", 0, 0), ("bytes=2-5", 2, 5), ("bytes=7-", 7, 9), ("bytes=-3", 7, 9), ("bytes=-100", 0, 9), ("bytes=5-100", 5, 9)])
def test_ranges(envd, work, field, first, last):
    (work / "f").write_bytes(b"0123456789")
    status, headers, got = get(envd, work / "f", {"Range": field})
    assert (status, got) == (206, b"0123456789"[first:last + 1])
    assert headers["Content-Range"] == f"bytes {first}-{last}/10" and headers["Content-Length"] == str(len(got))


def test_ranges_that_are_none(envd, work):
    (work / "f").write_bytes(b"0123456789")
    for field in ("bytes=10-", "bytes=100-200", "bytes=-0"):
        status, headers, _ = get(envd, work / "f", {"Range": field})
        assert (status, headers["Content-Range"]) == (416, "bytes */10"), field
    for field in ("bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=99999999999999999999-"):
        assert get(envd, work / "f", {"Range": field})[0::2] == (200, b"0123456789"), field


def test_only_if_it_was_changed(envd, work):
    (work / "f").write_bytes(b"0123456789")
    modified = get(envd, work / "f")[1]["Last-Modified"]
    status, _, got = get(envd, work / "f", {"If-Modified-Since": modified})
    assert (status, got) == (304, b"")
    assert get(envd, work / "f", {"If-Range": modified, "Range": "bytes=0-0"})[0] == 206
    assert get(envd, work / "f", {"If-Range": "another", "Range": "bytes=0-0"})[0] == 200


def test_files_that_can_not_be_read(envd, work):
    os.mkfifo(work / "fifo")
    assert get(envd, work / "none")[0::2] == (
        404, json.dumps({"code": 404, "message": f"path '{work}/none' does not exist"}, separators=(",", ":")).encode())
    for path, message in ((work, f"path '{work}' is a directory"), (work / "fifo", f"path '{work}/fifo' is not a regular file"),
                          ("/dev/zero", "path '/dev/zero' is not a regular file"), ("~daemon/x", "cannot expand user-specific home dir")):
        status, _, got = get(envd, path)
        assert (status, json.loads(got)) == (400, {"code": 400, "message": message})
    assert get(envd, "/etc/passwd/x")[0] == 400
    assert get(envd, "/" + "x" * 5000)[0] == 400
    assert get(envd, work / "none", {"Accept-Encoding": "identity;q=0, gzip"})[0] == 406
    assert get(envd, work / "none", {"Accept-Encoding": "identity;q=0.5, gzip"})[0] == 404
    assert envd.request("GET", "/files?path=%zz")[0] == 400


def test_whose_home(envd):
    home = pwd.getpwnam("root").pw_dir
    name = f".envd-test-{os.getpid()}"
    assert put(envd, name, b"x") == (200, [entry(f"{home}/{name}")])
    assert get(envd, name)[2] == get(envd, f"~/{name}")[2] == get(envd, f"./a/../{name}", username="root")[2] == b"x"
    # Which is not that of this machine's root.
    assert not os.path.exists(f"{home}/{name}")
    assert get(envd, "x", username="nobody-here")[0::2] == (
        401, b'{"code":401,"message":"error looking up user \'nobody-here\': user: unknown user nobody-here"}')


def test_a_file_that_becomes_shorter_is_cut_off(envd, work):
    path = work / "shrinks"
    path.write_bytes(bytes(50_000_000))
    c = envd.connect()
    c.request("GET", target(path), headers=envd.headers())
    r = c.getresponse()
    r.read(1000)
    os.truncate(path, 1000)
    with pytest.raises((ConnectionError, Exception)) as e:
        while r.read(1 << 20):
            pass
    assert "Incomplete" in repr(e.value) or isinstance(e.value, ConnectionError)
    c.close()


# Who may

def test_signatures_as_the_sdk_makes_them():
    assert sign("hello.txt", "read", "user", TOKEN) == "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
    assert sign("hello.txt", "write", "", TOKEN, 1700000000) == "v1_kfu+Ro1OO8SCAT1YWfxf4uTxuCiKCVxDOdr0s7hbyS4"


def unauthorized(envd, method, target, message, headers=None, body=None):
    c = envd.connect()
    c.request(method, target, body, headers or {})
    r = c.getresponse()
    assert (r.status, json.loads(r.read())) == (401, {"code": 401, "message": message})
    c.close()


def test_a_signature_instead_of_the_token(envd, work):
    path = str(work / "a+b /ü")
    later = int(time.time()) + 1000

    def request(method, body=None, **query):
        c = envd.connect()
        c.request(method, target(path, **query), body, {"Content-Type": "application/octet-stream"} if body else {})
        r = c.getresponse()
        out = r.status, r.read()
        c.close()
        return out

    assert request("POST", b"signed", signature=sign(path, "write", "", TOKEN))[0] == 200
    assert request("GET", signature=sign(path, "read", "", TOKEN)) == (200, b"signed")
    assert request("GET", username="root", signature=sign(path, "read", "root", TOKEN, later), signature_expiration=later)[0] == 200
    for query in ({}, {"signature": ""}, {"signature": "v1_"}, {"signature": sign(path, "write", "", TOKEN)},
                  {"signature": sign(path, "read", "", "other")}, {"signature": sign(path, "read", "", TOKEN)[3:]},
                  {"signature": sign(path, "read", "", TOKEN) + "="}, {"signature": sign(path, "read", "", TOKEN), "username": "root"},
                  {"signature": sign(path, "read", "", TOKEN, later), "signature_expiration": later + 1}):
        unauthorized(envd, "GET", target(path, **query),
                     "invalid signature" if "signature" in query else "missing signature query parameter")
    for when in (1, 0, "soon", -1, int(time.time()) - 2):
        unauthorized(envd, "GET", target(path, signature=sign(path, "read", "", TOKEN, when), signature_expiration=when),
                     "signature is already expired")
    unauthorized(envd, "GET", target(path, signature=sign(path, "read", "", TOKEN)),
                 "access token present in header but does not match", {"X-Access-Token": "wrong"})
    unauthorized(envd, "POST", target(path), "missing signature query parameter", body=b"x")


def test_without_a_token_nobody_is_asked(fresh, work):
    envd = Envd(fresh())
    (work / "f").write_bytes(b"x")
    assert get(envd, work / "f", {"X-Access-Token": "any"})[2] == b"x"


# Upload

def test_a_body_is_a_file(envd, work):
    path = work / "new/below/f ü"
    assert put(envd, path, b"one") == (200, [entry(path)])
    assert path.read_bytes() == b"one" and path.stat().st_mode & 0o7777 == 0o644
    os.chmod(path, 0o600)
    assert put(envd, path, b"2") == (200, [entry(path)])
    assert path.read_bytes() == b"2" and path.stat().st_mode & 0o7777 == 0o600
    assert put(envd, path, b"") == (200, [entry(path)])
    assert path.read_bytes() == b""


def test_whose_it_becomes(envd, work):
    path = work / "a/b"
    assert put(envd, path, b"", username="daemon")[0] == 200
    daemon = pwd.getpwnam("daemon")
    for p in (path, work / "a"):
        assert (p.stat().st_uid, p.stat().st_gid) == (daemon.pw_uid, daemon.pw_gid)
    assert (work / "a").stat().st_mode & 0o7777 == 0o755
    assert put(envd, path, b"")[0] == 200
    assert path.stat().st_uid == 0


def test_large_ones_in_chunks_both_ways(envd, work):
    data = pattern(1_000_000) * 100
    path = work / "large"
    c = envd.connect()
    c.request("POST", target(path), (data[i:i + 1_000_000] for i in range(0, len(data), 1_000_000)),
              {**envd.headers(), "Content-Type": "application/octet-stream"}, encode_chunked=True)
    assert json.loads(c.getresponse().read()) == [entry(path)]
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(data).digest()
    c.request("GET", target(path), headers=envd.headers())
    assert hashlib.sha256(c.getresponse().read()).digest() == hashlib.sha256(data).digest()
    c.close()
    if not sanitized():
        assert envd.agent.rss() < 60_000


def test_forms(envd, work):
    path = work / "f"
    assert post(envd, path, ("file", "other", b"data")) == (200, [entry(path)])
    assert path.read_bytes() == b"data"
    assert post(envd, path, ("file", None, b"field")) == (200, [entry(path)])
    assert path.read_bytes() == b"field"
    names = [work / "one", work / "deep/er/f ü.txt"]
    assert post(envd, None, ("file", str(names[0]), b"1"), ("note", None, b"skipped"), ("file", str(names[1]), b"\r\n--2")) == (
        200, [entry(n) for n in names])
    assert [n.read_bytes() for n in names] == [b"1", b"\r\n--2"]
    assert post(envd, None) == (200, [])


def test_compressed(envd, work):
    data = pattern(300_000) + bytes(300_000)
    packed = gzip.compress(data)
    assert put(envd, work / "f", packed, {"Content-Encoding": "gzip"})[0] == 200
    assert (work / "f").read_bytes() == data
    assert put(envd, work / "f", packed + gzip.compress(b"more"), {"Content-Encoding": "gzip"})[0] == 200
    assert (work / "f").read_bytes() == data + b"more"
    body, headers = form(("file", "x", data))
    status, _ = envd.json("POST", target(work / "g"), gzip.compress(body), headers={**headers, "Content-Encoding": "gzip"})
    assert status == 200 and (work / "g").read_bytes() == data
    for bad in (b"no gzip", packed[:-9], packed + b"x", b""):
        status, answer = put(envd, work / "h", bad, {"Content-Encoding": "gzip"})
        assert status == 400 and answer["message"].startswith("error decompressing the body"), bad[:10]


def test_metadata(envd, work):
    path = work / "f"
    try:
        os.setxattr(work, "user.e2b.try", b"")
    except OSError:
        pytest.skip("no extended attributes here")
    assert put(envd, path, b"", {"X-Metadata-Author": "me", "x-metadata-2": ""}) == (
        200, [entry(path, metadata={"author": "me", "2": ""})])
    assert os.getxattr(path, "user.e2b.author") == b"me"
    os.setxattr(path, "user.other", b"kept")
    assert put(envd, path, b"") == (200, [entry(path)])
    assert os.listxattr(path) == ["user.other"]
    body, headers = form(("file", str(path), b""), ("file", str(work / "g"), b""))
    assert envd.json("POST", target(), body, headers={**headers, "X-Metadata-a": "b"})[1] == [
        entry(p, metadata={"a": "b"}) for p in (path, work / "g")]
    for field, value in (("X-Metadata-", "x"), ("X-Metadata-" + "k" * 247, "x"), ("X-Metadata-k", "v" * 4097), ("X-Metadata-k", "ü")):
        status, answer = put(envd, work / "not-made", b"", {field: value.encode()})
        assert status == 400 and answer["message"].startswith("invalid metadata: ")
    assert not (work / "not-made").exists()


def test_uploads_that_are_refused(envd, work):
    def refused_with(message, status=400, path=None, body=b"x", **headers):
        got = envd.json("POST", target(path), body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        assert got == (status, {"code": status, "message": message})

    refused_with("path query parameter is required for raw body upload", Content_Type="application/octet-stream")
    refused_with("unsupported content type: text/plain, expected multipart/form-data or application/octet-stream",
                 path=work / "f", Content_Type="text/plain")
    refused_with("unsupported content encoding: br", path=work / "f", Content_Type="application/octet-stream", Content_Encoding="br")
    refused_with(f"path is a directory: {work}", path=work, Content_Type="application/octet-stream")
    refused_with("error parsing multipart form: no boundary", path=work / "f", Content_Type="multipart/form-data")
    refused_with("error parsing multipart form: it is none", path=work / "f", body=b"--bx", Content_Type="multipart/form-data; boundary=b")
    refused_with("error parsing multipart form: it is cut off", path=work / "f", body=b"--b\r\n", Content_Type="multipart/form-data; boundary=b")
    (work / "file").write_bytes(b"")
    assert put(envd, work / "file/below", b"")[0] == 400
    assert put(envd, "~daemon/f", b"")[0] == 400
    status, answer = post(envd, None, ("file", None, b"x"))
    assert status == 400 and "file name" in answer["message"]
    status, answer = post(envd, work / "twice", ("file", "a", b"1"), ("file", "b", b"2"))
    assert status == 400 and "more than once" in answer["message"]
    assert not (work / "f").exists()


def test_no_room(envd, work):
    with socket.create_connection(("127.0.0.1", envd.port), 60) as s:
        s.sendall(f"POST {target(work / 'f')} HTTP/1.1\r\nX-Access-Token: {TOKEN}\r\nContent-Type: application/octet-stream\r\n"
                  f"Content-Length: {1 << 60}\r\n\r\n".encode())
        assert s.recv(65536).startswith(b"HTTP/1.1 507 ")
    assert not (work / "f").exists()
    status, answer = put(envd, "/dev/full", b"x")
    assert (status, answer) == (507, {"code": 507, "message": "not enough disk space available"})


def test_a_client_that_goes_away_in_the_middle(envd, work):
    before = envd.agent.fds()
    with socket.create_connection(("127.0.0.1", envd.port), 60) as s:
        s.sendall(f"POST {target(work / 'f')} HTTP/1.1\r\nX-Access-Token: {TOKEN}\r\nContent-Type: application/octet-stream\r\n"
                  f"Content-Length: 1000\r\n\r\nabc".encode())
        until(lambda: (work / "f").exists() and (work / "f").read_bytes() == b"abc")
    until(lambda: envd.agent.fds() <= before)


def test_a_get_may_have_a_body_that_says_nothing(fresh, work):
    envd = Envd(fresh())
    (work / "f").write_bytes(b"abc")
    for size in (10, 9 << 20):
        assert get_with_body(envd, work / "f", b"x" * size) == (200, b"abc")
    assert envd.request("GET", "/health")[0] == 204


def get_with_body(envd, path, body):
    status, _, data = envd.request("GET", target(path), body)
    return status, data


def test_an_upload_waits_while_the_disk_is_frozen(fresh, work):
    agent = fresh()
    envd = Envd(agent)
    with socket.create_connection(("127.0.0.1", envd.port), 60) as s:
        s.sendall(f"POST {target(work / 'f')} HTTP/1.1\r\nContent-Type: application/octet-stream\r\nContent-Length: 6\r\n\r\nabc".encode())
        until(lambda: (work / "f").exists() and (work / "f").read_bytes() == b"abc")
        agent.call(FREEZE, FREEZE_DISK=1)
        s.sendall(b"def")
        assert not select.select([s], [], [], 0.3)[0] and (work / "f").read_bytes() == b"abc"
        agent.call(THAW)
        assert s.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert (work / "f").read_bytes() == b"abcdef"


# What it tells of the sandbox

def test_variables_and_metrics(fresh):
    envd = Envd(fresh(), "t", ENV=["A=b=c", "U=ä"])
    assert envd.json("GET", "/envs") == (200, {"E2B_SANDBOX": "true", "A": "b=c", "U": "ä"})
    for _ in range(2):
        before = int(time.time())
        status, m = envd.json("GET", "/metrics")
        assert status == 200 and before <= m["ts"] <= time.time() and m["cpu_count"] == os.sysconf("SC_NPROCESSORS_ONLN")
        assert 0 <= m["cpu_used_pct"] <= 100 and 0 < m["mem_used"] < m["mem_total"] and m["mem_total_mib"] == m["mem_total"] >> 20
        assert 0 < m["disk_used"] <= m["disk_total"] and m["mem_cache"] > 0
    assert envd.request("GET", "/envs", headers={"X-Access-Token": "wrong"})[0] == 401

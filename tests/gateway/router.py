# SPDX-License-Identifier: Apache-2.0
"""The way of a sandbox's traffic to the fake core's guests, by E2B's routing headers: what an ingress does on a host."""

import contextlib
import http.client
import http.server
import json
import threading

from guest import socket_in

# Not to be passed on: they are of one connection.
HOP_BY_HOP = {'connection', 'keep-alive', 'transfer-encoding', 'host', 'content-length'}


class GuestPort(http.client.HTTPConnection):
    def __init__(self, pid, port):
        super().__init__('127.0.0.1', port, timeout=120)
        self.pid = pid

    def connect(self):
        self.sock = socket_in(self.pid)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get('Transfer-Encoding', '').lower() != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length', 0)))
        body = b''
        while size := int(self.rfile.readline().split(b';')[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def bad_gateway(self, **more):
        data = json.dumps({'sandboxId': self.headers['E2b-Sandbox-Id'], 'code': 502, **more}).encode()
        self.send_response(502)
        self.send_header('Content-Type', 'application/json; charset=utf-8')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_back(self, answer):
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        length = answer.getheader('Content-Length')
        empty = self.command == 'HEAD' or answer.status == 204
        if length is not None:
            self.send_header('Content-Length', length)
        elif not empty:
            self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        while not empty and (data := answer.read1(65536)):
            self.wfile.write(data if length is not None else b'%x\r\n%s\r\n' % (len(data), data))
            self.wfile.flush()
        if not empty and length is None:
            self.wfile.write(b'0\r\n\r\n')

    def route(self):
        body, sandbox, port = self.body(), self.headers['E2b-Sandbox-Id'], int(self.headers['E2b-Sandbox-Port'])
        shown = self.server.host.ctl('show', sandbox, '-p', 'State,VMMPID', '--value').stdout.split()
        if len(shown) != 2 or shown[0] != 'running':
            self.bad_gateway(message='The sandbox was not found')
            return
        with contextlib.closing(GuestPort(int(shown[1]), port)) as guest:
            try:
                headers = {n: v for n, v in self.headers.items() if n.lower() not in HOP_BY_HOP}
                guest.request(self.command, self.path, body, headers)
            except ConnectionError:
                self.bad_gateway(message='The sandbox is running but port is not open', port=port)
                return
            try:
                self.send_back(guest.getresponse())
            except (OSError, http.client.HTTPException):
                # One end is gone: the other one has to see that it was cut.
                self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = route


class Router(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """Of a client that left."""


@contextlib.contextmanager
def routed(host):
    """Its URL."""
    with Router(('127.0.0.1', 0), Handler) as server:
        server.host = host
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f'http://127.0.0.1:{server.server_port}'
        finally:
            server.shutdown()
            thread.join()

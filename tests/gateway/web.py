# SPDX-License-Identifier: Apache-2.0
"""Servers in a guest, as its users have them: web.py KIND PORT [KEY]."""

import base64
import hashlib
import http.server
import json
import socket
import ssl
import struct
import sys
import threading

# What /stream waits for in the middle.
go_on = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def answer(self, body, status=200, kind='application/json'):
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
        self.wfile.flush()

    def begin_chunks(self, kind):
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()

    def chunks_of_body(self):
        while size := int(self.rfile.readline().split(b';')[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def do_GET(self):
        name = self.path.split('?')[0]
        if name == '/stream':
            go_on.clear()
            self.begin_chunks('text/event-stream')
            self.chunk(b'data: first\n\n')
            assert go_on.wait(60)
            self.chunk(b'data: last\n\n')
            self.chunk(b'')
        elif name == '/go':
            go_on.set()
            self.answer(b'{}')
        elif name == '/sized':
            self.send_response(200)
            self.send_header('Content-Length', '1000000')
            self.end_headers()
            self.wfile.write(b'x' * 10)
            self.wfile.flush()
            go_on.wait(60)
        elif name == '/large':
            size = int(self.path.split('?')[1])
            self.send_response(200)
            self.send_header('Content-Length', str(size))
            self.end_headers()
            for _ in range(size // 65536):
                self.wfile.write(b'\xa5' * 65536)
        elif name == '/status':
            self.answer(b'{"mine":true}', int(self.path.split('?')[1]))
        elif name == '/websocket':
            self.websocket()
        else:
            self.tell()

    def tell(self):
        """What came."""
        self.answer(json.dumps({'line': self.requestline, 'headers': {k.lower(): v for k, v in self.headers.items()},
                                'names': self.headers.keys(),
                                'at': self.connection.getsockname(),
                                'resumed': getattr(self.connection, 'session_reused', None)}).encode())

    def do_POST(self):
        if self.path == '/echo':
            self.begin_chunks('application/octet-stream')
            for chunk in self.chunks_of_body():
                self.chunk(chunk)
            self.chunk(b'')
        elif self.path == '/hash':
            h = hashlib.sha256()
            if 'Content-Length' in self.headers:
                left = int(self.headers['Content-Length'])
                while left > 0:
                    data = self.rfile.read(min(left, 65536))
                    h.update(data)
                    left -= len(data)
            else:
                for chunk in self.chunks_of_body():
                    h.update(chunk)
            self.answer(h.hexdigest().encode())
        else:
            self.tell()

    def websocket(self):
        """Sends each short frame back."""
        key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        self.send_header('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while head := self.rfile.read(2):
            size = head[1] & 127
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([head[0], size]) + data)
            self.wfile.flush()


def frame(kind, flags, stream, payload):
    return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def grpc(port):
    """HTTP/2 from the first byte, one call of which the body comes back, and trailers."""
    listener = socket.create_server(('', port))
    print('ready', flush=True)
    while True:
        s, _ = listener.accept()
        f = s.makefile('rb')
        assert f.read(24) == b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
        s.sendall(frame(4, 0, 0, b''))
        while len(head := f.read(9)) == 9:
            payload = f.read(int.from_bytes(head[:3], 'big'))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], 'big')
            if kind == 4 and not flags & 1:
                s.sendall(frame(4, 1, 0, b''))
            elif kind == 1:
                assert b'application/grpc' in payload
                # :status 200
                s.sendall(frame(1, 4, stream, b'\x88'))
            elif kind == 0 and flags & 1:
                name, value = b'grpc-status', b'0'
                s.sendall(frame(0, 0, stream, payload) +
                          frame(1, 5, stream, b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value))


if __name__ == '__main__':
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == 'grpc':
        grpc(port)
    server = http.server.ThreadingHTTPServer(('', port), Handler)
    server.daemon_threads = True
    if kind == 'tls':
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print('ready', flush=True)
    server.serve_forever()

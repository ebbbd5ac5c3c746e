# SPDX-License-Identifier: Apache-2.0
"""A registry that only gives: an OCI image layout (ociimage.py) under any name, by TLS and with a password. Where Debian's is not."""

import base64
import http.server
import json
import ssl
import threading

from registry import PASSWORD, USER, make_certificate

EXPECTED = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _reply(self, status, data=b"", kind="application/octet-stream", **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_GET(self):
        if self.headers.get("Authorization") != EXPECTED:
            self._reply(401, WWW_Authenticate='Basic realm="cube"')
            return
        blobs = self.server.layout / "blobs/sha256"
        manifest = json.loads((self.server.layout / "index.json").read_text())["manifests"][0]
        what, _, name = self.path.rpartition("/")
        if self.path == "/v2/":
            self._reply(200)
        elif what.endswith("/manifests"):
            data = (blobs / manifest["digest"].split(":")[1]).read_bytes()
            self._reply(200, data, manifest["mediaType"], Docker_Content_Digest=manifest["digest"])
        elif what.endswith("/blobs") and (blobs / name.split(":")[1]).exists():
            self._reply(200, (blobs / name.split(":")[1]).read_bytes())
        else:
            self._reply(404)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class LayoutServer:
    """On loopback; directory/certs has its CA."""

    def __init__(self, directory, layout, names):
        make_certificate(directory, names)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.layout = layout.directory
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "certs/ca.crt", directory / "key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

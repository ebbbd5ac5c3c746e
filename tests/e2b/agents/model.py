# SPDX-License-Identifier: Apache-2.0
"""A model on loopback that has its turns written down: what it wants done, and what it must hear of it. It speaks the
Responses API as far as openai-agents asks."""

import http.server
import json
import threading


def call(name, **arguments):
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def patch(text):
    return {"type": "custom_tool_call", "name": "apply_patch", "input": f"*** Begin Patch\n{text}*** End Patch\n"}


def say(text):
    return {"type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}


class Model(http.server.ThreadingHTTPServer):
    """turns: pairs of what it answers and a word that the next request has to have among the results of its calls."""

    daemon_threads = True

    def __init__(self, turns):
        super().__init__(("127.0.0.1", 0), Handler)
        self.turns, self.taken, self.wrong = turns, 0, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def answer(self, request):
        heard = [str(item["output"]) for item in request["input"] if str(item.get("type")).endswith("_call_output")]
        if self.taken > 0:
            wanted = self.turns[self.taken - 1][1]
            if wanted not in heard[-1]:
                self.wrong.append(f"{wanted!r} is not in {heard[-1]!r}")
        item = self.turns[self.taken][0]
        self.taken += 1
        return {"id": f"resp_{self.taken}", "object": "response", "created_at": 0, "status": "completed", "model": "scripted",
                "output": [{"id": f"item_{self.taken}", "call_id": f"call_{self.taken}", **item}], "parallel_tool_calls": False,
                "tool_choice": "auto", "tools": [], "usage": {
                    "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                    "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        data = json.dumps(self.server.answer(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

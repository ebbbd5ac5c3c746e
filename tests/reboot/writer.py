# SPDX-License-Identifier: Apache-2.0
"""Does things to sandboxes until somebody ends it, and notes each when it has been acknowledged.

A note is a line of JSON in the file that is named, on the disk before the next thing begins. The last thing is under way
when the power is cut; of that nothing is known."""

import itertools
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from cubetest import ctl_ok, remove_snapshot, snapshot  # noqa: E402


def main(path, sandbox_id):
    with open(path, "w", encoding="utf-8") as notes:
        def note(**what):
            notes.write(json.dumps(what) + "\n")
            notes.flush()
            os.fsync(notes.fileno())

        older = None
        for n in itertools.count():
            word = f"word{n}"
            ctl_ok("exec", sandbox_id, "--", "sh", "-c", f"echo {word} >/dev/shm/word; echo {word} >/root/word")
            taken = snapshot(sandbox_id)
            note(snapshot=taken, word=word)
            copy = ctl_ok("create", f"snapshot:{taken}", "--timeout", "1h").strip()
            ctl_ok("pause", copy)
            note(paused=copy, word=word)
            if older:
                # what was removed may come back; what is there must be whole
                ctl_ok("kill", older[1])
                note(removed=older[1])
                remove_snapshot(older[0])
                note(removed=older[0])
            older = taken, copy


if __name__ == "__main__":
    main(*sys.argv[1:])

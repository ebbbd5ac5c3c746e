# SPDX-License-Identifier: Apache-2.0
"""Does things to sandboxes until somebody ends it, and notes each before it begins, if it takes something away, and when it
has been acknowledged.

A note is a line of JSON in the file that is named, on the disk before the next thing begins:
    {"snapshot": ID, "word": WORD}, {"paused": ID, "word": WORD}    has that word, and is there
    {"going": ID}                                                   may be there or not, from here on"""

import itertools
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from cubetest import ctl_ok, remove_snapshot, snapshot  # noqa: E402


def write(sandbox_id, word):
    ctl_ok("exec", sandbox_id, "--", "sh", "-c", f"echo {word} >/dev/shm/word; echo {word} >/root/word")


def create(source):
    return ctl_ok("create", source, "--timeout", "1h").strip()


def main(path, base):
    with open(path, "w", encoding="utf-8") as notes:
        def note(**what):
            notes.write(json.dumps(what) + "\n")
            notes.flush()
            os.fsync(notes.fileno())

        note(snapshot=base, word="base")
        older = None
        for n in itertools.count():
            word = f"word{n}"
            running = create(f"snapshot:{base}")
            write(running, word)
            taken = snapshot(running)
            note(snapshot=taken, word=word)
            write(running, f"late-{word}")
            ctl_ok("pause", running)
            note(paused=running, word=f"late-{word}")
            copy = create(f"snapshot:{taken}")
            ctl_ok("pause", copy)
            note(paused=copy, word=word)
            if older:
                note(going=older[2])
                ctl_ok("resume", older[2])
                write(older[2], f"again-{word}")
                ctl_ok("pause", older[2])
                note(paused=older[2], word=f"again-{word}")
                for sandbox_id in older[1:]:
                    note(going=sandbox_id)
                    ctl_ok("kill", sandbox_id)
                note(going=older[0])
                remove_snapshot(older[0])
            older = taken, running, copy


if __name__ == "__main__":
    main(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""docs/e2b-compatibility.md has every public method of E2B's SDK for Python, and says of each how it is here."""

import json
import os
import re
import subprocess

import pytest

from description import TOP

PAGE = TOP / 'docs/e2b-compatibility.md'
CLASSES = """
import e2b, inspect, json
from e2b_code_interpreter import Sandbox
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.command_handle import CommandHandle
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.filesystem.watch_handle import WatchHandle
from e2b.template.main import TemplateBuilder
classes = [Sandbox, Commands, CommandHandle, Pty, Filesystem, WatchHandle, TemplateBuilder, e2b.Template, e2b.Git, e2b.Volume, e2b.Secret]
print(json.dumps({c.__name__: [n for n in dir(c) if n[0] != '_' and not isinstance(inspect.getattr_static(c, n), (int, str))]
                  for c in classes}))
"""


def tables():
    """{heading: [(JavaScript, Python, how)]}, but for what dev/e2b-suite has written"""
    found = {}
    for part in re.sub('<!-- results .*?<!-- end of results -->', '', PAGE.read_text(), flags=re.S).split('\n## ')[1:]:
        rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in part.splitlines() if line.startswith('|')]
        found[part.split('\n')[0]] = rows[2:]
    return found


def test_each_row_says_how_it_is():
    for heading, rows in tables().items():
        for row in rows:
            assert re.match(r'works\b|differs: |not there\b|below', row[-1]), (heading, row)


def test_both_languages_have_the_same_methods():
    """But for how they write names, and that one language leaves the class away."""
    def plain(text):
        return {re.sub(r'_|^.*\.', '', name).lower() for name in re.findall(r'`([^`]+)`', text)}
    for heading, rows in tables().items():
        for row in rows:
            if len(row) == 3 and row[0] and heading not in ('Sandboxes', 'Commands and terminals', 'What only E2B\'s service has'):
                assert plain(row[0]) == plain(row[1]) or 'watch_dir' in row[1], (heading, row)


@pytest.mark.skipif('CUBE_E2B_SDK' not in os.environ, reason='CUBE_E2B_SDK names no environment with e2b; dev/test makes one')
def test_no_method_of_the_sdk_is_left_out():
    named = set(re.findall(r'`(?:\w+\.)*(\w+)`', ' '.join(' '.join(row) for rows in tables().values() for row in rows)))
    result = subprocess.run([os.environ['CUBE_E2B_SDK'] + '/bin/python', '-c', CLASSES], text=True, capture_output=True, check=True)
    missing = {name: sorted(set(methods) - named) for name, methods in json.loads(result.stdout).items()}
    assert not any(missing.values()), missing

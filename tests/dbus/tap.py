#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""pytest with TAP on stdout, so that meson counts each test: tap.py [PYTEST ARGUMENT...]"""

import contextlib
import os
import sys
import tempfile

import pytest


# A parameter may be megabytes, and meson reads no line that long.
NAME_MAX = 160


class Tap:
    def __init__(self, out):
        self.out = out
        self.n = 0

    def say(self, *lines):
        print(*lines, sep='\n', file=self.out, flush=True)

    def pytest_collection_finish(self, session):
        self.say(f'1..{len(session.items)}')

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.replace('#', '_')[:NAME_MAX]
        if report.skipped:
            self.n += 1
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.say(f'ok {self.n} - {name} # SKIP {reason}')
        elif report.failed:
            # a broken teardown of a test that passed would be one result too many
            if report.when != 'teardown':
                self.n += 1
            self.say(f'not ok {self.n} - {name}', *('# ' + line for line in str(report.longrepr).splitlines()))
        elif report.when == 'call':
            self.n += 1
            self.say(f'ok {self.n} - {name}')


if __name__ == '__main__':
    tap = Tap(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr):
        # pytest closes the one that all its runs share to other users, who have to reach a bus in it.
        with tempfile.TemporaryDirectory() as root:
            os.environ['PYTEST_DEBUG_TEMPROOT'] = root
            os.chmod(root, 0o755)
            status = pytest.main(['-p', 'no:cacheprovider', '-q', '--no-header', '--tb=short', *sys.argv[1:]], plugins=[tap])
    if tap.n == 0:
        tap.say(f'Bail out! pytest ended with status {int(status)}')

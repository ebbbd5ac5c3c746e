# SPDX-License-Identifier: Apache-2.0
"""suite_package.py FILE: of E2B's package.json, what its tests of a server import."""

import json
import sys

WANTED = {"vitest", "msw", "dotenv", "undici", "error-stack-parser-es"}

with open(sys.argv[1]) as f:
    package = json.load(f)
wanted = {name: version for name, version in package["devDependencies"].items() if name in WANTED}
json.dump({"private": True, "dependencies": package["dependencies"] | wanted}, sys.stdout)

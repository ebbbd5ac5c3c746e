# SPDX-License-Identifier: Apache-2.0
"""suite_report.py [--report FILE] DIRECTORY: what came of E2B's own tests, from the files that their runners wrote, and
whether each that failed is known to, in suite-reasons.txt."""

import argparse
import collections
import fnmatch
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

HERE = pathlib.Path(__file__).parent
BEGIN, END = "<!-- results of dev/e2b-suite, {} -->", "<!-- end of results -->"


def tests(path):
    """((file, name, how many before it are called so), state) of each."""
    seen = collections.Counter()
    for case in ET.parse(path).getroot().iter("testcase"):
        file = (case.get("classname") or "").removeprefix("tests/").removeprefix("tests.")
        if "python." in path.name:
            file = "/".join(part for part in file.split(".") if not part[0].isupper()) + ".py"
        state = ("failed" if case.find("failure") is not None or case.find("error") is not None
                 else "skipped" if case.find("skipped") is not None else "passed")
        seen[file, case.get("name")] += 1
        yield (file, case.get("name"), seen[file, case.get("name")]), state


def reasons(target):
    """Lines of target, pattern of FILE::NAME and reason, between tabs."""
    for line in (HERE / "suite-reasons.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            where, pattern, reason = re.split("\t+", line)
            if where in (target, "*"):
                yield pattern, reason


def table(suite, results):
    counts = collections.defaultdict(collections.Counter)
    for file, _, state in results:
        counts[str(pathlib.Path(file).parent)][state] += 1
    lines = [f"| {suite} | passed | failed | skipped |", "|---|---|---|---|"]
    for directory, count in sorted(counts.items()):
        lines.append(f"| `{directory}` | {count['passed']} | {count['failed']} | {count['skipped']} |")
    total = collections.Counter(state for *_, state in results)
    lines.append(f"| all | {total['passed']} | {total['failed']} | {total['skipped']} |")
    return lines


def failures(suite, results, known):
    """Markdown lines of those that are known to fail, and the names of others."""
    by_reason, others = collections.defaultdict(list), []
    for file, name, state in results:
        if state != "failed":
            continue
        reason = next((reason for pattern, reason in known if fnmatch.fnmatchcase(f"{suite}/{file}::{name}", pattern)), None)
        if reason is None:
            others.append(f"{suite}/{file}::{name}")
        else:
            by_reason[reason].append(f"`{file}`: {name}")
    return [f"- {reason}: {'; '.join(names)}" for reason, names in sorted(by_reason.items())], others


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    options = parser.parse_args()
    known, lines, unknown, factors = list(reasons(options.target)), [], [], set()
    for suite in ("js", "python", "code-js", "code-python"):
        # SUITE.TIME.FACTOR.xml; the last run of each test counts
        states = {}
        for path in sorted(options.directory.glob(f"{suite}.*.xml")):
            # a run that was cut short leaves an empty file
            if path.stat().st_size:
                states.update(tests(path))
                factors.add(int(path.name.split(".")[-2]))
        if not states:
            continue
        results = [(file, name, state) for (file, name, _), state in states.items()]
        listed, others = failures(suite, results, known)
        lines += [*table(suite, results), "", *listed, *(f"- not known why: `{one}`" for one in others), ""]
        unknown += others
    assert lines, f"no results in {options.directory}"
    factor = " to ".join(map(str, sorted({min(factors), max(factors)})))
    text = f"Target: {options.target}; E2B's limits of time times {factor}.\n\n" + "\n".join(lines)
    print(text)
    if options.report:
        page = options.report.read_text()
        begin = BEGIN.format(options.target)
        before, rest = page.split(begin)
        options.report.write_text(f"{before}{begin}\n{text}\n{END}{rest.split(END, 1)[1]}")
    return 1 if unknown else 0


sys.exit(main())

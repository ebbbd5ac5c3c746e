# SPDX-License-Identifier: Apache-2.0
"""`cubectl template build` with ordered steps, and on another template."""

import json
import os
import tarfile

import pytest

KEEPING_TAR = '''#!/bin/sh
# tar --create --file FILE ...: what is in FILE stays behind.
/usr/bin/tar "$@" && cp "$3" "$KEEP/archive-$(basename "$3")"
'''


@pytest.fixture
def build(host, tmp_path):
    """build(option...): cubectl's result on the template python. What it packed is in tmp_path, as archive-N."""
    place, tools = tmp_path / 'place', tmp_path / 'tools'
    place.mkdir()
    tools.mkdir()
    (tools / 'tar').write_text(KEEPING_TAR)
    (tools / 'tar').chmod(0o755)

    def go(*options, source='template:python'):
        result = host.ctl('template', 'build', 'mine', '--from', source, *options,
                          env={'TMPDIR': str(place), 'KEEP': str(tmp_path), 'PATH': f'{tools}:{os.environ["PATH"]}'})
        assert list(place.iterdir()) == []
        return result
    return go


def steps(*texts):
    return [word for text in texts for word in ('--step', text)]


def test_steps_are_given_in_their_order(build):
    good = build(*steps('USER --sudo app', 'WORKDIR /srv/app', 'ENV GREETING=hello  world ', 'RUN echo "$GREETING"; a\nb',
                        'RUN --user=root id', 'ENV EMPTY='), '--start', 'serve')
    assert good.returncode == 0, good.stderr
    lines = [line for line in good.stderr.splitlines() if not line.startswith('[ ')]
    at = lines.index('[step 1 of 6 (USER)]')
    assert lines[at:at + 15] == [
        '[step 1 of 6 (USER)]', 'app true', '[step 2 of 6 (WORKDIR)]', '/srv/app', '[step 3 of 6 (ENV)]', 'GREETING hello  world ',
        '[step 4 of 6 (RUN)]', 'echo "$GREETING"; a', 'b', '[step 5 of 6 (RUN)]', 'id root', '[step 6 of 6 (ENV)]', 'EMPTY ',
        '[all steps are done]', 'start serve']
    assert 'copy of' not in good.stderr


def test_a_copy_is_an_archive_that_a_step_unpacks_and_a_last_one_removes(build, tmp_path):
    (tmp_path / 'app/sub').mkdir(parents=True)
    (tmp_path / 'app/sub/b').write_text('b')
    (tmp_path / 'app/a').write_text('a')
    (tmp_path / 'app/link').symlink_to('a')
    (tmp_path / 'one two').symlink_to('app/a')
    good = build(*steps(f'COPY {tmp_path}/app /srv/app', f'COPY --chown=app:web --chmod=0640 {tmp_path}/one two data/'))
    assert good.returncode == 0, good.stderr
    assert 'copy of a directory to /.cube-build\n' in good.stderr
    assert ('[step 1 of 3 (COPY)]\n/.cube-build/1 . /srv/app  \n'
            '[step 2 of 3 (COPY)]\n/.cube-build/2 one two data/ app:web 0640\n'
            '[step 3 of 3 (RUN)]\nrm -rf /.cube-build root\n') in good.stderr
    with tarfile.open(tmp_path / 'archive-1') as tar:
        assert tar.getnames() == ['.', './a', './link', './sub', './sub/b'] and tar.getmember('./link').issym()
        assert {(m.uid, m.gid, m.uname, m.gname) for m in tar} == {(0, 0, '', '')}
    # a link that is named is what it leads to
    with tarfile.open(tmp_path / 'archive-2') as tar:
        assert tar.getnames() == ['one two'] and tar.extractfile('one two').read() == b'a'


def test_the_same_files_make_the_same_archive(build, tmp_path):
    """A build that has nothing to do can only be found by that."""
    (tmp_path / 'app').mkdir()
    for name in ('c', 'a', 'b'):
        (tmp_path / 'app' / name).write_text(name)
    made = []
    for owner in (0, 1000):
        os.chown(tmp_path / 'app/a', owner, owner)
        assert build(*steps(f'COPY {tmp_path}/app /srv')).returncode == 0
        made.append((tmp_path / 'archive-1').read_bytes())
    assert made[0] == made[1]


def test_what_is_copied_has_to_be_there(build, tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for source, words in (('/nonexistent', 'No such file'), (tmp_path / 'pipe', 'neither a file nor a directory')):
        bad = build(*steps('RUN true', f'COPY {source} /x'))
        assert bad.returncode == 1 and words in bad.stderr and bad.stdout == ''
    (tmp_path / 'tools/tar').write_text('#!/bin/sh\necho it is full >&2\nexit 2\n')
    bad = build(*steps(f'COPY {tmp_path} /x'))
    assert bad.returncode == 1 and 'it is full\n' in bad.stderr and 'tar said why' in bad.stderr


def test_a_file_has_steps_and_paths_of_its_own(host, build, tmp_path):
    repository = tmp_path / 'repository'
    (repository / 'app').mkdir(parents=True)
    (repository / 'cube.json').write_text(json.dumps({
        'name': 'web', 'from': 'template:python', 'step': ['WORKDIR /srv', 'COPY app .', 'RUN make']}))
    good = host.ctl('template', 'build', '--file', repository / 'cube.json')
    assert good.returncode == 0, good.stderr
    assert '[step 2 of 4 (COPY)]\n/.cube-build/1 . .  \n[step 3 of 4 (RUN)]\nmake\n' in good.stderr
    # on the command line they take the place of all of the file's
    other = build('--file', repository / 'cube.json', *steps('RUN other'))
    assert '[step 1 of 1 (RUN)]\nother\n' in other.stderr and 'COPY' not in other.stderr


def test_a_template_on_another_one(build):
    good = build('--cpus', '2', '--memory', '1G', '--start', 'serve', '--ready', 'true')
    assert good.returncode == 0 and 'on tpythonpython, 2 CPUs, 1024 MiB\n' in good.stderr, good.stderr
    assert 'on tpythonpython' in build(source='template:tpythonpython').stderr
    assert "No template 'nosuch'" in build(source='template:nosuch').stderr


def test_a_step_that_fails(build):
    bad = build(*steps('RUN true', 'RUN exit 1'))
    assert bad.returncode == 1 and bad.stdout == '' and 'step 2' in bad.stderr


@pytest.mark.parametrize('options, words', [
    (steps('EXPOSE 80'), 'a step begins with RUN, COPY, ENV, WORKDIR or USER'),
    (steps('run true'), "not with 'run'"),
    (steps('RUN'), 'RUN takes'),
    (steps('RUN --user=root'), 'RUN takes'),
    (steps('COPY app'), 'COPY takes'),
    (steps('ENV A b'), 'ENV takes'),
    (steps('WORKDIR '), 'WORKDIR takes'),
    (steps('USER a b'), 'USER takes'),
    (steps('USER --admin a'), 'USER takes'),
    (steps(*['RUN true'] * 256), '255 times'),
    ([*steps('RUN true'), '--setup', 'true'], "don't go together"),
    (['--kernel', 'small'], 'has its kernel'),
    (['--disk', '1G'], 'has its disk'),
    (['--no-warm'], '--no-warm'),
])
def test_wrong_steps_are_refused(build, options, words):
    bad = build(*options)
    assert bad.returncode == 1 and words in bad.stderr and bad.stdout == '', bad.stderr

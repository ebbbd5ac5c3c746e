# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDK for Python, unmodified: templates are built, named and removed."""

import os
import subprocess
import textwrap

import pytest

pytestmark = pytest.mark.skipif("CUBE_E2B_SDK" not in os.environ,
                                reason="CUBE_E2B_SDK names no environment with e2b; dev/test makes one")


@pytest.fixture(scope='module')
def sdk(started, tmp_path_factory):
    context = tmp_path_factory.mktemp('context')
    (context / 'app' / 'below').mkdir(parents=True)
    (context / 'app' / 'main.py').write_text('print(1)\n')
    (context / 'app' / 'below' / 'data').write_bytes(os.urandom(300000))
    (context / 'one.txt').write_text('one\n')
    with started.on_loopback() as url:
        key = started.key()

        def run(code):
            env = {'PATH': os.environ['PATH'], 'E2B_API_URL': url, 'E2B_SANDBOX_URL': url, 'E2B_API_KEY': key}
            script = context / 'script.py'
            script.write_text(textwrap.dedent(code))
            result = subprocess.run([os.environ['CUBE_E2B_SDK'] + '/bin/python', script], env=env, text=True, cwd=context,
                                    timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert result.returncode == 0, result.stdout + started.log()[-3000:]
        yield run


def test_a_template_with_all_kinds_of_steps(sdk):
    sdk("""
        from e2b import Template
        lines = []
        template = (Template().from_template('python')
                    .copy('app', '/srv/app').copy('one.txt', 'one.txt', user='root', mode=0o640)
                    .set_envs({'A': '1', 'B': '$A'}).set_workdir('/srv/app').set_user('app').run_cmd('make all')
                    .run_cmd('as root', user='root').set_start_cmd('serve', 'is-ready'))
        info = Template.build(template, 'mine:v1', tags=['stable'], cpu_count=2, memory_mb=1024,
                              on_build_logs=lambda e: lines.append(f'{e.level} {e.message}'))
        assert info.name == 'mine:v1' and info.tags == ['v1', 'stable'] and len(info.build_id) == 36, info
        text = '\\n'.join(lines)
        for wanted in ('[1/7] COPY', '/.cube-build/1 app /srv/app', '/.cube-build/2 one.txt one.txt root 0640', '[3/7] ENV',
                       'A 1 B $A', '[4/7] WORKDIR', '[5/7] USER', '[6/7] RUN', 'make all', '[7/7] RUN', 'as root root',
                       'start serve', 'ready is-ready', '2 CPUs, 1024 MiB', 'copy of a directory to /.cube-build', "Uploaded 'app'"):
            assert wanted in text, (wanted, text)
        assert 'of 8' not in text and 'rm -rf' not in text, text

        # Its files are there by now.
        again = []
        Template.build(template, 'mine:v2', on_build_logs=lambda e: again.append(e.message))
        assert "Skipping upload of 'app', already cached" in again, again
        status = Template.get_build_status(info)
        assert status.status.value == 'ready' and status.log_entries[0].timestamp, status
    """)


def test_names_and_tags(sdk):
    sdk("""
        from e2b import Template, Sandbox
        info = Template.build(Template().from_template('python').run_cmd('true'), 'named')
        assert info.tags == ['default'], info
        assert Template.exists('named') and not Template.exists('nosuch') and Template.exists('python')
        tagged = Template.assign_tags('named', ['a', 'b'])
        assert tagged.build_id == info.build_id and sorted(tagged.tags) == ['a', 'b'], tagged
        tags = {t.tag: t for t in Template.get_tags('named')}
        assert sorted(tags) == ['a', 'b', 'default'] and {t.build_id for t in tags.values()} == {info.build_id}, tags
        assert tags['a'].created_at.year > 2000
        newer = Template.build(Template().from_template('named').run_cmd('true'), 'named')
        assert newer.template_id == info.template_id and newer.build_id != info.build_id
        tags = {t.tag: t.build_id for t in Template.get_tags(info.template_id)}
        assert tags == {'default': newer.build_id, 'a': info.build_id, 'b': info.build_id}, tags
        Template.remove_tags('named', 'b')
        assert sorted(t.tag for t in Template.get_tags('named')) == ['a', 'default']
        for name in ('named', 'named:a', info.template_id):
            sandbox = Sandbox.create(name)
            seen = sandbox.get_info()
            assert seen.template_id == info.template_id and seen.name == 'named', seen
            assert sandbox.kill()
    """)


def test_builds_that_fail(sdk):
    sdk("""
        from e2b import BuildException, FileUploadException, Template, TemplateException
        def fails(kind, call, *words):
            try:
                call()
            except kind as e:
                assert all(w in str(e) for w in words), e
                return e
            raise SystemExit('did not fail')
        base = Template().from_template('python')
        e = fails(BuildException, lambda: Template.build(base.run_cmd('true').run_cmd('exit 1'), 'bad'), 'ended with exit status 1')
        frames = []
        trace = e.__traceback__
        while trace:
            frames.append(trace.tb_lineno)
            trace = trace.tb_next
        assert 11 in frames, frames
        fails(BuildException, lambda: Template.build(Template().from_template('nosuch'), 'bad'), "template 'nosuch' not found")
        fails(BuildException, lambda: Template.build(base, 'Not a name!'), 'Invalid name')
        fails(BuildException, lambda: Template.build(base, 'mine:x!'), 'Invalid')
        fails(BuildException, lambda: Template.build(base, 'mine', memory_mb=3), 'memoryMB has to be from')
        fails(TemplateException, lambda: Template.assign_tags('nosuch', 'x'), '404')
        fails(TemplateException, lambda: Template.remove_tags('mine', 'default'), "Cannot delete the 'default' tag")
        fails(TemplateException, lambda: Template.assign_tags('python', 'x'), '403')
        assert not Template.exists('bad')
    """)


def test_in_the_background(sdk):
    sdk("""
        import time
        from e2b import Template
        info = Template.build_in_background(Template().from_template('python').run_cmd('true'), 'behind')
        while (status := Template.get_build_status(info)).status.value in ('waiting', 'building'):
            time.sleep(0.05)
        assert status.status.value == 'ready' and Template.exists('behind')
    """)

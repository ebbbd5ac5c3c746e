# SPDX-License-Identifier: Apache-2.0
"""Templates: builds with all kinds of steps, their files and logs, names, tags, and what fails."""

import os
import pathlib
import tempfile
import time

import e2b
from e2b import BuildException, TemplateException
from lib import SYNC, Sandbox, fails, go

SANDBOX = False
Template = e2b.Template if SYNC else e2b.AsyncTemplate
CONTEXT = pathlib.Path(tempfile.mkdtemp())
(CONTEXT / "app" / "below").mkdir(parents=True)
(CONTEXT / "app" / "main.py").write_text("print(1)\n")
(CONTEXT / "app" / "below" / "data").write_bytes(os.urandom(300000))
(CONTEXT / "one.txt").write_text("one\n")


def base():
    return Template(file_context_path=CONTEXT).from_template(os.environ["CUBE_TEMPLATE"])


async def test_all_kinds_of_steps():
    lines = []
    template = (base().copy("app", "/srv/app").copy("one.txt", "one.txt", user="root", mode=0o640)
                .set_envs({"A": "1", "B": "$A"}).set_workdir("/srv/app").set_user("app").run_cmd("make all")
                .run_cmd("as root", user="root").set_start_cmd("serve", "is-ready"))
    info = await go(Template.build(template, "mine:v1", tags=["stable"], cpu_count=2, memory_mb=1024,
                                   on_build_logs=lambda e: lines.append(e.message)))
    assert info.name == "mine:v1" and len(info.build_id) == 36, info
    text = "\n".join(lines)
    for wanted in ("[1/7] COPY", "/.cube-build/1 app /srv/app", "/.cube-build/2 one.txt one.txt root 0640", "[3/7] ENV",
                   "A 1 B $A", "[4/7] WORKDIR", "[5/7] USER", "[6/7] RUN", "make all", "[7/7] RUN", "as root root",
                   "start serve", "ready is-ready", "2 CPUs, 1024 MiB", "copy of a directory to /.cube-build"):
        assert wanted in text, (wanted, text)
    assert "rm -rf" not in text, text

    # Its files are there by now.
    again = []
    await go(Template.build(template, "mine:v2", on_build_logs=lambda e: again.append(e.message)))
    assert "Skipping upload of 'app', already cached" in again, again
    assert (await go(Template.get_build_status(info))).status.value == "ready"


async def test_names_and_tags():
    info = await go(Template.build(base().run_cmd("true"), "named"))
    assert await go(Template.exists("named")) and not await go(Template.exists("nosuch"))
    tagged = await go(Template.assign_tags("named", ["a", "b"]))
    assert tagged.build_id == info.build_id and sorted(tagged.tags) == ["a", "b"], tagged
    newer = await go(Template.build(Template().from_template("named").run_cmd("true"), "named"))
    assert newer.template_id == info.template_id and newer.build_id != info.build_id
    tags = {t.tag: t.build_id for t in await go(Template.get_tags(info.template_id))}
    assert tags == {"default": newer.build_id, "a": info.build_id, "b": info.build_id}, tags
    await go(Template.remove_tags("named", "b"))
    assert sorted(t.tag for t in await go(Template.get_tags("named"))) == ["a", "default"]
    for name in ("named", "named:a", info.template_id):
        sandbox = await go(Sandbox.create(name))
        seen = await go(sandbox.get_info())
        assert seen.template_id == info.template_id and seen.name == "named", seen
        assert await go(sandbox.kill())


async def test_an_image_that_is_fetched():
    image = os.environ.get("CUBE_IMAGE")
    if not image:
        return
    login = {"username": os.environ["CUBE_IMAGE_USER"], "password": os.environ["CUBE_IMAGE_PASSWORD"]}
    lines = []
    await go(Template.build(Template().from_image(image, **login).run_cmd("make all"), "imaged",
                            on_build_logs=lambda e: lines.append(e.message)))
    text = "\n".join(lines)
    for wanted in (f"Fetching {image}", "Copying blob", "[1/1] RUN"):
        assert wanted in text, (wanted, text)
    sandbox = await go(Sandbox.create("imaged"))
    assert await go(sandbox.kill())
    for wrong in ({**login, "password": "no"}, {}):
        await fails(BuildException, lambda w=wrong: Template.build(Template().from_image(image, **w), "bad"), "could not be fetched")


async def test_builds_that_fail():
    e = await fails(BuildException, lambda: Template.build(base().run_cmd("true").run_cmd("exit 1"), "bad"), "exit status 1")
    # The SDK tells whose step it was: this file's.
    files, trace = [], e.__traceback__
    while trace:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert files[-1] == __file__, files
    for template, name, words in ((Template().from_template("nosuch"), "bad", "template 'nosuch' not found"),
                                  (Template().from_image("elsewhere.invalid/nosuch:1"), "bad",
                                   "fetches no images from elsewhere.invalid"),
                                  (base(), "Not a name!", "Invalid name")):
        await fails(BuildException, lambda t=template, n=name: Template.build(t, n), words)
    await fails(BuildException, lambda: Template.build(base(), "mine", memory_mb=3), "memoryMB has to be from")
    await fails(TemplateException, lambda: Template.assign_tags("nosuch", "x"), "404")
    await fails(TemplateException, lambda: Template.remove_tags("mine", "default"), "Cannot delete the 'default' tag")
    await fails(TemplateException, lambda: Template.assign_tags(os.environ["CUBE_TEMPLATE"], "x"), "403")
    assert not await go(Template.exists("bad"))


async def test_in_the_background():
    info = await go(Template.build_in_background(base().run_cmd("true"), "behind"))
    while (status := await go(Template.get_build_status(info))).status.value in ("waiting", "building"):
        time.sleep(0.05)
    assert status.status.value == "ready" and await go(Template.exists("behind"))

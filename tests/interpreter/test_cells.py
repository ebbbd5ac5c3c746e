# SPDX-License-Identifier: Apache-2.0
"""What cells give, in each language."""

import base64
import io

import pytest
from PIL import Image

from cells import CELLS, differences


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.language}-{cell.code.splitlines()[0][:40]}")
def test_cell(server, cell):
    execution = server.run(cell.code, language=cell.language)
    wrong = differences(cell, execution.results, execution.stdout, execution.stderr, execution.error)
    assert not wrong, execution.lines


def test_a_picture_is_of_its_size_and_not_blank(server):
    execution = server.run("import matplotlib.pyplot as plt\nfigure = plt.figure(figsize=(4, 3), dpi=100)\n"
                           "figure.add_axes([0, 0, 1, 1]).plot([0, 1], [0, 1], 'r', linewidth=20)\n"
                           "plt.gcf().savefig('picture.png')\ndisplay(Image(filename='picture.png'))"
                           .replace("display(", "from IPython.display import display, Image\ndisplay("))
    picture = Image.open(io.BytesIO(base64.b64decode(execution.results[0]["png"], validate=True)))
    assert picture.size == (400, 300)
    colours = picture.convert("RGB").getcolors(1 << 20)
    assert max(colours)[0] < 400 * 300 * 0.95 and any(colour == (255, 0, 0) for _, colour in colours)


PICTURE = "from PIL import Image\npicture = Image.new('RGB', (3, 2), (255, 0, 0))\n"


@pytest.mark.parametrize("cell", ["picture.save('own.png')", "picture.save('own.jpg')", "picture.show()"])
def test_a_picture_of_pillow_that_is_saved_or_shown_is_a_result(server, cell):
    execution = server.run(PICTURE + cell)
    [result] = execution.results
    assert not result["is_main_result"] and result["text"].startswith("<PIL.Image.Image image mode=RGB size=3x2")
    shown = Image.open(io.BytesIO(base64.b64decode(result["png"], validate=True)))
    assert (shown.size, shown.getpixel((0, 0))) == ((3, 2), (255, 0, 0))


def test_a_picture_of_pillow_that_goes_elsewhere_is_none(server):
    execution = server.run(PICTURE + "import io\nfile = io.BytesIO()\npicture.save(file, 'PNG')\nlen(file.getvalue()) > 60")
    assert [one["text"] for one in execution.results] == ["True"]


def test_a_picture_that_png_can_not_have_is_saved_all_the_same(server):
    execution = server.run("import os\nfrom PIL import Image\nImage.new('CMYK', (3, 2)).save('ink.jpg')\nos.path.getsize('ink.jpg') > 0")
    assert [one["text"] for one in execution.results] == ["True"] and not execution.error and not execution.stderr


def test_a_show_is_no_main_result_and_the_last_expression_is(server):
    execution = server.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n7")
    assert [(one["is_main_result"], "png" in one) for one in execution.results] == [(False, True), (True, False)]
    assert execution.results[0]["text"].startswith("<Figure") and execution.results[0]["extra"] == {}


def test_a_large_table_is_shown_and_sent_once(server):
    result = server.run("import numpy, pandas\npandas.DataFrame(numpy.zeros((1000, 101)))").main
    assert "data" not in result and "<table" in result["html"]


def test_a_table_of_what_json_has_no_word_for(server):
    result = server.run("import numpy as np, pandas\npandas.DataFrame({1: [np.nan, 1.5], 'b': [np.inf, None], "
                        "'c': [pandas.Timedelta('1s'), pandas.NaT], 'd': pandas.array([1, None], 'Int64')})").main
    assert result["data"] == {"1": [None, 1.5], "b": [None, None], "c": ["0 days 00:00:01", None], "d": [1, None]}


def test_the_traceback_is_one_string_without_colours(server):
    error = server.run("def f():\n    raise ValueError('here')\nf()").error
    assert "\x1b" not in error["traceback"]
    assert "----> 3 f()" in error["traceback"] and error["traceback"].endswith("ValueError: here")

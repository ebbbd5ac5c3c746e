# SPDX-License-Identifier: Apache-2.0
"""Charts as data. The shapes are those that E2B's SDKs read; test_sdk.py lets them."""

import pytest


@pytest.fixture
def chart(server):
    def run(code):
        execution = server.run("import matplotlib.pyplot as plt\nplt.close('all')\n" + code + "\nplt.show()")
        assert not execution.error, execution.error
        [result] = [one for one in execution.results if "png" in one]
        return result.get("chart")
    return run


def test_lines(chart):
    found = chart("plt.plot([1, 2, 3], [4, float('nan'), 6], label='L'); plt.plot([1, 3], [2, 2]); plt.grid()\n"
                  "plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('Way [m]')")
    assert found["type"] == "line" and found["title"] == "T"
    assert (found["x_label"], found["x_unit"], found["y_label"], found["y_unit"]) == ("Time (s)", "s", "Way [m]", "m")
    assert (found["x_scale"], found["y_scale"]) == ("linear", "linear")
    assert found["elements"] == [{"label": "L", "points": [[1, 4], [2, None], [3, 6]]},
                                 {"label": "Line 1", "points": [[1, 2], [3, 2]]}]
    assert len(found["x_ticks"]) == len(found["x_tick_labels"]) > 0


def test_dates(chart):
    found = chart("import datetime\nplt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)], [1, 2])")
    assert found["x_scale"] == "datetime" and found["x_ticks"][0].startswith("2024-01-01T00:00:00")
    assert [x for x, _ in found["elements"][0]["points"]] == ["2024-01-01", "2024-01-03"]


def test_names(chart):
    found = chart("plt.plot(['a', 'b'], [1, 2])")
    assert found["x_scale"] == "categorical" and found["x_tick_labels"] == ["a", "b"]


def test_scatter_on_a_logarithmic_scale_with_a_rule(chart):
    found = chart("plt.scatter([1, 10], [3, 4], label='S'); plt.xscale('log'); plt.axhline(3.5)")
    assert (found["type"], found["x_scale"]) == ("scatter", "log")
    assert found["elements"] == [{"label": "S", "points": [[1, 3], [10, 4]]}]


def test_bars_in_groups(chart):
    found = chart("plt.bar(['a', 'b'], [1, 2], label='G'); plt.bar(['a', 'b'], [3, 4], bottom=[1, 2])")
    assert found["type"] == "bar"
    assert found["elements"] == [{"label": label, "group": group, "value": value} for label, group, value in
                                 (("a", "G", 1), ("b", "G", 2), ("a", "Group 1", 3), ("b", "Group 1", 4))]


def test_lying_bars_of_one_length(chart):
    found = chart("plt.barh(['a', 'b'], [4, 4]); plt.xlabel('much'); plt.ylabel('who')")
    assert (found["x_label"], found["y_label"]) == ("who", "much")
    assert [(one["label"], one["value"]) for one in found["elements"]] == [("a", 4), ("b", 4)]


def test_a_pie(chart):
    found = chart("plt.pie([1, 3], labels=['p', 'q'])")
    assert found["elements"] == [{"label": "p", "angle": 90, "radius": 1}, {"label": "q", "angle": 270, "radius": 1}]


@pytest.mark.parametrize("lying", [False, True])
def test_boxes(chart, lying):
    found = chart(f"plt.boxplot([[1, 2, 3, 4, 20], [2, 3, 4, 5, 6]], patch_artist=True, vert={not lying}, "
                  "labels=['s', 't'])")
    assert found["type"] == "box_and_whisker"
    assert found["elements"] == [
        {"label": "s", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 4, "outliers": [20]},
        {"label": "t", "min": 2, "first_quartile": 3, "median": 4, "third_quartile": 5, "max": 6, "outliers": []}]


def test_many_axes_are_one_superchart(chart):
    found = chart("figure, axes = plt.subplots(1, 2)\naxes[0].plot([1]); axes[1].pie([1]); figure.suptitle('S')")
    assert (found["type"], found["title"]) == ("superchart", "S")
    assert [one["type"] for one in found["elements"]] == ["line", "pie"]


def test_a_picture_is_of_unknown_kind(chart):
    assert chart("plt.imshow([[1, 2]])") == {"type": "unknown", "title": None, "elements": []}


def test_no_data_no_chart(chart):
    assert chart("plt.figure().add_subplot()") is None

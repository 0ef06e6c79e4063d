"""The page of the studio in a real browser, against a real server."""

import math
import re

import pytest
import torch

from torchcaps.analysis.clusters import trace_clusters
from torchcaps.analysis.points import make_points
from torchcaps.analysis.trees import routing_tree, trace_image

ROOMS = ("clusters", "digit", "tree")
READY = {"clusters": "#plane-0 .center", "digit": ".bars .wins", "tree": "#stage .chosen"}
# Counts the questions of each kind that are under way at once.
COUNTER = """
  const real = window.fetch;
  window.most = {};
  const now = {};
  window.fetch = async (path, options) => {
    now[path] = (now[path] ?? 0) + 1;
    window.most[path] = Math.max(window.most[path] ?? 0, now[path]);
    try { return await real(path, options); } finally { now[path] -= 1; }
  };
  0
"""


@pytest.fixture
def enter(open_page, studio):
    """A room of the studio, when it has something to show."""

    def enter_one(room, **options):
        page = open_page(f"{studio}#{room}", **{"viewport": {"width": 1280, "height": 900}, **options})
        page.wait_for_selector(READY[room])
        return page

    return enter_one


def arc(x, y, wide, high, start, end):
    angles = [math.radians(start + (end - start) * step / 12) for step in range(13)]
    return [(x + wide * math.cos(angle), y + high * math.sin(angle)) for angle in angles]


def draw(page, line, size=1.0, left=0.0, top=0.0):
    box = page.locator("#pad").bounding_box()
    spots = [
        (box["x"] + box["width"] * (left + size * x), box["y"] + box["height"] * (top + size * y)) for x, y in line
    ]
    page.mouse.move(*spots[0])
    page.mouse.down()
    for spot in spots[1:]:
        page.mouse.move(*spot)
    page.mouse.up()


def until(page, condition, arg=None):
    """Wait for a condition on `arg`; a function, as the page's policy forbids to evaluate strings."""
    page.wait_for_function(f"arg => {condition}", arg=arg)


def says(page, name, text):
    until(page, f"document.querySelector('{name}').textContent === arg", text)


def answer(page, said):
    says(page, "#answer", f"It is {said}.")


def centers(page, plane=0):
    heads = page.locator(f"#plane-{plane} .center")
    return torch.tensor(heads.evaluate_all("heads => heads.map(head => [+head.dataset.x, +head.dataset.y])")).double()


def image_of(page, name):
    return page.evaluate("name => document.getElementById(name).toDataURL()", name)


def set_range(page, name, value):
    page.locator(name).evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')) }", value
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_room_fits_and_needs_nothing_from_elsewhere(enter, studio, scheme, width):
    page = enter("clusters", viewport={"width": width, "height": 800}, color_scheme=scheme)
    for room in ROOMS:
        page.click(f"#tab-{room}")
        page.wait_for_selector(READY[room])
        assert page.url.endswith(f"#{room}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
        assert page.locator("[role=tabpanel]:visible").count() == 1
    page.go_back()
    page.wait_for_selector("#room-digit:visible")
    assert page.title() == "Digit · torchcaps studio"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 31)"
    assert dark == (scheme == "dark")
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith((studio, "data:"))] == []


def test_everything_has_a_name_and_every_picture_an_equation(enter):
    page = enter("clusters")
    unnamed = """room => [...document.querySelectorAll(`#room-${room} :is(button, input, select, canvas, svg)`)]
        .filter(each => each.checkVisibility() && !each.closest('[aria-label], [aria-labeledby]')
            && !each.labels?.length && !each.textContent.trim()).map(each => each.outerHTML)"""
    for room, equations in zip(ROOMS, (2, 4, 1), strict=True):
        page.click(f"#tab-{room}")
        page.wait_for_selector(READY[room])
        assert page.evaluate(unnamed, room) == []
        assert page.locator(f"#room-{room} .equation:visible").count() == equations
        assert page.get_attribute(f"#tab-{room}", "aria-selected") == "true"


def test_a_drawn_three_is_a_three_wherever_and_however_large(enter):
    page = enter("digit")
    page.evaluate(COUNTER)
    three = arc(0.47, 0.32, 0.20, 0.16, -150, 90) + arc(0.47, 0.66, 0.24, 0.18, -90, 150)
    for place in ({}, {"size": 0.4, "left": 0.05, "top": 0.5}):
        page.click("#clear")
        assert page.text_content("#answer") == ""
        draw(page, three, **place)
        answer(page, "3")
        assert float(page.text_content(".bars .wins .value")) > 0.9
    assert page.evaluate("window.most") == {"api/digit": 1}  # one in flight, however fast the mouse is
    page.click("#tab-tree")  # the other rooms see the drawing
    says(page, "#tree-name", "The way to 3")
    assert page.locator("#room-tree .thumb[aria-pressed=true]").get_attribute("aria-label") == "your drawing"
    assert page.complaints == []


def test_drawings_lie_as_digits_of_mnist_do(enter):
    page = enter("digit")
    page.click("#clear")
    with page.expect_request("**/api/digit") as asked:
        draw(page, [(0.10, 0.10), (0.30, 0.12), (0.20, 0.40)])
    page.wait_for_selector(".bars .wins")
    pixels = torch.tensor(page.evaluate("import('./store.js').then(({ studio }) => studio.image.pixels)")).double()
    assert asked.value.post_data_json["network"] == "mnist-efficient"
    rows, columns = pixels.sum(1), pixels.sum(0)
    places = torch.arange(28) + 0.5
    for ink in (rows, columns):
        assert float((ink * places).sum() / ink.sum()) == pytest.approx(14, abs=0.25)
    assert 18 <= int((rows > 30).sum()) <= 22  # the longer side fills the box of 20
    assert pixels.max() > 240


def test_sliders_move_the_picture_and_a_double_click_brings_it_back(enter):
    page = enter("digit")
    page.click("[aria-label='example of 4']")
    answer(page, "4")
    before = image_of(page, "drawing")
    slider = page.locator("#pose-4")
    home = slider.input_value()
    assert page.locator("#sliders input").count() == 16
    slider.fill(slider.get_attribute("max"))
    until(page, "document.getElementById('drawing').toDataURL() !== arg", before)
    assert page.is_enabled("#reset")
    slider.dblclick(position={"x": 4, "y": 8})
    assert slider.input_value() == home
    assert image_of(page, "drawing") == before
    for number in (0, 7):
        page.locator(f"#pose-{number}").press("End")
    until(page, "document.getElementById('drawing').toDataURL() !== arg", before)
    page.click("#reset")
    assert image_of(page, "drawing") == before
    assert not page.is_enabled("#reset")
    assert page.complaints == []


def test_played_to_the_end_the_centers_are_those_of_the_library(enter):
    page = enter("clusters")
    points = make_points("blobs").points
    set_range(page, "#iterations", 3)
    says(page, "#clusters-transport .when", "iteration 1 of 3")
    expected = [trace_clusters(points, routing, 3, 3) for routing in ("dynamic", "gaussian")]
    for plane, trace in enumerate(expected):
        torch.testing.assert_close(centers(page, plane), trace.steps[0].centers, atol=1e-5, rtol=0)
    page.click("#clusters-transport .play")
    assert page.text_content("#clusters-transport .play") == "Pause"
    says(page, "#clusters-transport .play", "Play")
    assert page.text_content("#clusters-transport .when") == "iteration 3 of 3"
    for plane, trace in enumerate(expected):
        torch.testing.assert_close(centers(page, plane), trace.steps[-1].centers, atol=1e-5, rtol=0)
        shown = page.locator(f"#plane-{plane} ~ .legend li:not(.first)").all_inner_texts()
        assert shown == [f"{place}: {value:.2f}" for place, value in enumerate(trace.steps[-1].activations.tolist(), 1)]
    assert page.locator("#plane-1 ellipse").count() == 6  # one and two standard deviations of three parents
    objective = page.locator(".panel").nth(1).locator(".objective output").text_content()
    assert objective == f"{expected[1].steps[-1].objective:.2f}"
    page.locator(".panel").nth(0).locator(".curve").click(position={"x": 13, "y": 40})  # back to the first iteration
    assert page.text_content("#clusters-transport .when") == "iteration 1 of 3"
    assert page.complaints == []


def test_points_are_moved_added_and_removed(enter):
    page = enter("clusters")
    page.click("#sets button[value=overlap]")
    until(page, "document.querySelectorAll('#plane-0 .center').length === 2")
    assert page.text_content("#chosen-text").startswith("120 points")
    before = centers(page, 1)
    page.locator("#plane-1").scroll_into_view_if_needed()
    box = page.locator("#plane-1").bounding_box()
    dot = page.locator("#plane-1-0").bounding_box()
    page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 40, steps=3)
    page.mouse.up()
    moved = page.locator("#plane-0-0").bounding_box()  # both pictures show the same points
    first = page.locator("#plane-0").bounding_box()
    assert moved["x"] + moved["width"] / 2 - first["x"] == pytest.approx(40, abs=2)
    until(page, "+document.querySelector('#plane-1 .center').dataset.x !== arg", float(before[0, 0]))
    page.locator("#plane-1").click(position={"x": 60, "y": box["height"] - 20})
    assert page.text_content("#chosen-text").startswith("Point 121 of 121")
    page.keyboard.press("Delete")
    assert page.text_content("#chosen-text").startswith("Point 120 of 120")
    page.click("#remove")
    assert page.locator("#plane-0 .dots circle:not(.ring)").count() == 119
    assert page.complaints == []


def test_a_finger_adds_a_point(enter):
    page = enter("clusters", viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    plane = page.locator("#plane-0")
    plane.scroll_into_view_if_needed()
    plane.tap(position={"x": 12, "y": 12})
    assert page.text_content("#chosen-text").startswith("Point 151 of 151")


def test_options_and_votes_reach_the_routing(enter):
    page = enter("clusters")
    page.click("#compare")
    panel = page.locator(".panel").first
    panel.locator(".routing select").select_option("kmeans")
    panel.locator("summary").click()
    panel.get_by_label("sharpness").fill("5")
    expected = trace_clusters(make_points("blobs").points, "kmeans", 3, 10, sharpness=5.0)
    page.click("#clusters-transport .forth")
    x = float(expected.steps[1].centers[0, 0])
    until(page, "Math.abs(document.querySelector('#plane-0 .center').dataset.x - arg) < 1e-5", x)
    with page.expect_response("**/api/votes") as told:
        page.click("#sets button[value=votes]")
    page.wait_for_selector("#votes-text:visible")
    assert page.text_content("#votes-text") == told.value.json()["text"]
    count = "document.querySelectorAll('#plane-0 .dots circle:not(.ring)').length === arg"
    until(page, count, len(told.value.json()["points"]))
    assert page.complaints == []


def test_the_tree_steps_through_the_couplings_of_the_library(enter, networks):
    page = enter("tree")
    page.select_option("#network", "placed")
    says(page, "#tree-transport .when", "iteration 1 of 2")
    network = networks["placed"]
    tree = routing_tree(
        trace_image(
            network.model,
            network.image(page.evaluate("import('./store.js').then(({ studio }) => studio.image.pixels)")),
        )
    )
    label = tree.roots[0]
    assert page.text_content("#tree-name") == f"The way to {network.classes[label]}"
    root = next(number for number, node in enumerate(tree.nodes) if node.layer == tree.layers - 1)
    strongest = sorted((edge for edge in tree.edges if edge.parent == root), key=lambda edge: -edge.coupling)[0]
    assert page.locator(".numbers tbody tr").first.locator("td").all_inner_texts() == [
        f"{coupling:.2f}" for coupling in strongest.couplings
    ]
    widths = "[...document.querySelectorAll('.lines path')].map(line => +line.getAttribute('stroke-width'))"
    first = page.evaluate(widths)
    page.click("#tree-transport .forth")
    until(page, f"JSON.stringify({widths}) !== JSON.stringify(arg)", first)
    assert page.text_content("#tree-transport .when") == "iteration 2 of 2"
    page.locator(f"[data-key=node-{strongest.child}]").hover()
    assert page.locator(f"[data-key=class-{label}].on").count() == 1  # a part lights up its whole
    assert page.locator(".lines .on").count() >= 1
    other = next(number for number in range(3) if number != label)
    page.locator(f"[data-key=class-{other}]").click()
    says(page, "#tree-name", f"The way to {network.classes[other]}")
    assert page.complaints == []


def test_all_can_be_done_with_the_keyboard(enter):
    page = enter("clusters", reduced_motion="reduce")
    keys = page.keyboard
    page.focus("#tab-clusters")
    page.focus("#plane-0")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key in ("]", "]", "Shift+ArrowRight"):
        keys.press(key)
    said = page.text_content("#chosen-text")
    assert said.startswith("Point 2 of 150")
    keys.press("Enter")
    assert page.text_content("#chosen-text").startswith("Point 151 of 151")
    keys.press("Delete")
    keys.press("Space")
    assert page.text_content("#clusters-transport .play") == "Pause"
    keys.press("Space")
    page.focus("#tab-clusters")
    keys.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-digit"
    page.wait_for_selector(".bars .wins")
    page.focus("#pad")
    keys.press("Delete")
    for key in ["Shift+ArrowUp"] * 3 + ["Space"] + ["ArrowDown"] * 24:
        keys.press(key)
    answer(page, "1")
    page.focus("#pose-0")
    keys.press("End")
    assert page.input_value("#pose-0") == page.get_attribute("#pose-0", "max")
    keys.press("Delete")
    assert page.input_value("#pose-0") != page.get_attribute("#pose-0", "max")
    page.focus("#tab-digit")
    keys.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-tree"
    page.wait_for_selector("#stage .chosen")
    page.focus("#stage [tabindex='0']")
    keys.press("ArrowLeft")
    assert re.match(r"part, type \d+, activation", page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert page.text_content(".numbers h4").startswith("Couplings of type")
    keys.press("ArrowRight")
    key = page.evaluate("document.activeElement.dataset.key")
    keys.press("Enter")
    says(page, "#tree-name", f"The way to {key.removeprefix('class-')}")
    assert page.evaluate("document.activeElement.dataset.key") == key  # the tree is new, the focus stays
    assert page.complaints == []


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_those_who_want_no_motion_see_none(enter, motion):
    page = enter("clusters", reduced_motion=motion)
    page.click("#compare")
    first = centers(page)
    page.evaluate("document.querySelector('#clusters-transport .forth').click()")
    at_once = "+document.querySelector('#plane-0 .center').dataset.x"
    step = "(document.querySelector('#clusters-transport .forth').click(), " + at_once + ")"
    expected = trace_clusters(make_points("blobs").points, "dynamic", 3, 10)
    if motion == "reduce":
        assert page.evaluate(step) == pytest.approx(float(expected.steps[2].centers[0, 0]))
    else:
        until(page, f"Math.abs({at_once} - arg) < 1e-9", float(expected.steps[1].centers[0, 0]))
        before = page.evaluate(at_once)
        assert page.evaluate(step) == before  # it starts where it was
        assert before != float(first[0, 0])


def test_networks_of_all_kinds_can_be_shown(enter):
    page = enter("digit")
    page.select_option("#network", "color")  # wide images in color, no digits
    until(page, "document.querySelectorAll('.bars li').length === 3")
    page.wait_for_selector(".bars .wins")
    box = page.locator("#pad").bounding_box()
    assert box["height"] / box["width"] == pytest.approx(16 / 12, rel=0.01)
    page.click("#clear")
    draw(page, [(0.2, 0.2), (0.8, 0.9)])
    page.wait_for_selector(".bars .wins")
    page.click("#tab-tree")
    page.wait_for_selector("#stage .chosen")
    assert page.locator("#stage .part .map").count() == page.locator("#stage .part").count() > 0
    for _ in range(2):
        page.click("#tree-transport .forth")
    says(page, "#tree-transport .when", "iteration 3 of 3")
    page.select_option("#network", "placed")  # fewer iterations, parts with places, capsules between
    says(page, "#tree-transport .when", "iteration 2 of 2")
    page.wait_for_selector("#stage .part .dot")
    page.select_option("#network", "plain")  # no routing, no decoder
    says(page, "#share", "This network has no routing, so it grows no tree.")
    page.click("#tab-digit")
    page.wait_for_selector(".bars .wins")
    assert page.is_hidden("#pose-card")
    assert page.is_hidden("#drawing")
    assert page.complaints == []


def test_what_the_server_refuses_is_said_and_forgotten_when_it_is_over(enter, studio):
    page = enter("clusters")
    page.route("**/api/clusters", lambda route: route.fulfill(status=422, json={"error": "clusters: expected more."}))
    page.click("#restart")
    page.wait_for_selector("#alert:visible")
    assert page.text_content("#alert") == "clusters: expected more."
    page.unroute("**/api/clusters")
    page.click("#restart")
    page.wait_for_selector("#alert", state="hidden")

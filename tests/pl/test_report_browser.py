"""The report in a real browser: what a reader sees and does."""

from __future__ import annotations

import shutil
import time

import numpy as np
import pytest

from dice._data.colors import Colors
from dice._plot.report import Explorer, page

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (dependency group test)")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

SCRIPT = "<script>document.title='broken'</script>"
ROOMY = (1200, 1000)


@pytest.fixture(scope="module")
def browser():
    """Headless chromium, which must be there already."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={ROOMY[0]},{ROOMY[1]}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


def explorer(n: int = 9) -> Explorer:
    """Cells on a grid; their second map is the first one turned."""
    side = int(np.ceil(np.sqrt(n)))
    x, y = np.arange(n) % side, np.arange(n) // side
    where = np.column_stack([x, y]).astype(np.float32)
    columns = [
        Colors("label", np.arange(n) % 3.0, {SCRIPT: "#0072b2", "NK": "#e69f00", "T": "#009e73"}),
        Colors("label_dice_prob", np.linspace(0, 1, n)),
        Colors("gaps", np.where(np.arange(n) % 2 == 0, np.nan, 0), {"only": "#d55e00"}),
    ]
    maps = {"PCA projection": where, "DICE": where[:, ::-1].copy()}
    return Explorer([f"cell {i}" for i in range(n)], maps, columns, ["label_dice_prob"], "label")


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page with a map of `n` cells."""

    def open_page(n: int = 9, figures: str = ""):
        sections = dict.fromkeys(("overview", "warnings", "genes", "parameters"), "") | {"figures": figures}
        (tmp_path / "report.html").write_text(page(explorer(n), title="t", summary="s", **sections), encoding="utf-8")
        browser.get((tmp_path / "report.html").as_uri())
        settle(browser)
        return browser

    yield open_page
    # A refused script, a request to anywhere, or an error of ours would all have been logged.
    assert complaints(browser) == []
    assert browser.title == "t"


def complaints(browser) -> list[str]:
    """What the browser logged, except for advice on reading pixels, which only these tests do."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["source"] != "rendering"]


def settle(browser) -> None:
    """Wait for the cells to arrive."""
    WebDriverWait(browser, 20).until(lambda b: canvas(b).get_attribute("data-drawn"))
    time.sleep(0.9)


def canvas(browser):
    return browser.find_element(By.ID, "map")


def spot(browser, x: float, y: float) -> tuple[int, int]:
    """Offset from the middle of the canvas, in CSS pixels, of a point of the unit square."""
    side = 0.94 * min(canvas(browser).size.values())
    return round((x - 0.5) * side), round((0.5 - y) * side)


def color_at(browser, x: float, y: float) -> str:
    dx, dy = spot(browser, x, y)
    script = """
        const c = document.getElementById('map'), r = c.width / c.clientWidth;
        const at = [Math.round(c.width / 2 + arguments[0] * r), Math.round(c.height / 2 + arguments[1] * r)];
        const [red, green, blue] = c.getContext('2d').getImageData(...at, 1, 1).data;
        return '#' + [red, green, blue].map(v => v.toString(16).padStart(2, '0')).join('');"""
    return browser.execute_script(script, dx, dy)


def legend(browser) -> list[str]:
    return [entry.text for entry in browser.find_elements(By.CSS_SELECTOR, "#legend button span")]


def press(browser, text: str) -> None:
    next(b for b in browser.find_elements(By.TAG_NAME, "button") if text in b.text).click()
    time.sleep(0.9)


def test_all_cells_are_drawn_in_their_colours(opened):
    browser = opened()
    assert canvas(browser).get_attribute("data-drawn") == "9"
    # The map of the denoised cells comes first: cell 1 lies above cell 0.
    assert [color_at(browser, x, y) for x, y in ((0, 0), (0, 0.5), (0, 1))] == ["#0072b2", "#e69f00", "#009e73"]
    assert color_at(browser, 0.25, 0.25) == "#ffffff"
    assert legend(browser) == [SCRIPT, "NK", "T"]


def test_the_other_representation(opened):
    browser = opened()
    press(browser, "PCA projection")
    assert [color_at(browser, x, y) for x, y in ((0, 0), (0.5, 0), (1, 0))] == ["#0072b2", "#e69f00", "#009e73"]
    pressed = [b.text for b in browser.find_elements(By.CSS_SELECTOR, "#maps [aria-pressed=true]")]
    assert pressed == ["PCA projection"]


def test_pointing_shows_the_cell(opened):
    browser = opened()
    ActionChains(browser).move_to_element_with_offset(canvas(browser), *spot(browser, 0.5, 0.5)).perform()
    tip = browser.find_element(By.ID, "tip")
    assert tip.text.splitlines() == ["cell 4", "label", "NK", "label_dice_prob", "0.5"]
    ActionChains(browser).move_to_element_with_offset(canvas(browser), *spot(browser, 0, 0)).perform()
    assert SCRIPT in tip.text
    ActionChains(browser).move_to_element_with_offset(canvas(browser), *spot(browser, 0.25, 0.25)).perform()
    assert not tip.is_displayed()


def test_colour_by_any_column(opened):
    browser = opened()
    select = Select(browser.find_element(By.ID, "color"))
    assert [option.text for option in select.options] == ["label", "label_dice_prob", "gaps"]
    select.select_by_visible_text("label_dice_prob")
    time.sleep(0.2)
    assert color_at(browser, 0, 0) == "#440154"
    assert color_at(browser, 1, 1) == "#fde725"
    assert browser.find_element(By.CSS_SELECTOR, "#legend .ends").text.split() == ["0", "1"]
    select.select_by_visible_text("gaps")
    time.sleep(0.2)
    assert [color_at(browser, 0, 0), color_at(browser, 0, 0.5)] == ["#b8b8b8", "#d55e00"]


def test_a_label_is_singled_out(opened):
    browser = opened()
    press(browser, "NK")
    assert [color_at(browser, 0, y) for y in (0, 0.5, 1)] == ["#e4e4e4", "#e69f00", "#e4e4e4"]
    press(browser, "NK")
    assert color_at(browser, 0, 0) == "#0072b2"


def test_moving_zooming_and_back(opened):
    browser = opened()
    corner = spot(browser, 0, 0)
    ActionChains(browser).drag_and_drop_by_offset(canvas(browser), 0, 100).perform()
    time.sleep(0.2)
    # Cell 4 was in the middle.
    assert color_at(browser, 0.5, 0.5) == "#ffffff"
    press(browser, "Whole map")
    assert color_at(browser, 0.5, 0.5) == "#e69f00"
    wheel = """const [element, clientX, clientY] = arguments;
        element.dispatchEvent(new WheelEvent('wheel', {deltaY: -400, clientX, clientY}));"""
    box = canvas(browser).rect
    at = box["x"] + box["width"] / 2 + corner[0], box["y"] + box["height"] / 2 + corner[1]
    scroll = browser.execute_script("return window.scrollY")
    browser.execute_script(wheel, canvas(browser), at[0], at[1] - scroll)
    time.sleep(0.2)
    assert color_at(browser, 0, 0) == "#0072b2"
    assert int(canvas(browser).get_attribute("data-drawn")) < 9


def test_the_browser_refuses_the_network_and_other_scripts(opened):
    browser = opened(figures=f"{SCRIPT}<img src='http://localhost:9/x.png'>")
    refused = complaints(browser)
    assert len(refused) == 2
    assert all("Content Security Policy" in message for message in refused)
    assert canvas(browser).get_attribute("data-drawn") == "9"


def test_fifty_thousand_cells_stay_fluid(opened):
    browser = opened(50_000)
    times = browser.execute_async_script("""
        const done = arguments[0], c = document.getElementById('map'), times = [];
        requestAnimationFrame(function step() {
            times.push(Number(c.dataset.milliseconds));
            c.dispatchEvent(new WheelEvent('wheel', {deltaY: times.length % 2 ? -8 : 8}));
            times.length < 60 ? requestAnimationFrame(step) : done(times);
        });""")
    # The quickest frames tell what drawing costs, whoever else has the core: 11 ms (median) on a busy machine.
    assert np.quantile(times, 0.1) < 50

"""The page in headless Chromium: every task, the keyboard alone, an input method, any width, no script of others."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertie.apps.search.index import index
from bertie.apps.serve.golden import difference
from bertie.apps.serve.remote import WorkerSettings
from serving import LETTERS, live, make_model, make_models, until
from toys import TASK_OPTIONS, toy_model

pytest.importorskip("starlette")
selenium = pytest.importorskip("selenium")
CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and its driver"),
]
SHOTS = os.environ.get("BERTIE_SCREENSHOTS")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("documents")
    (home / "library.txt").write_text("Books are here.\n\nThe library is in the old town hall. 도서관은 시청에 있다.")
    index([str(home)], home / "index")
    with live(make_models(tmp_path_factory.mktemp("models")), indexes={"notes": home / "index"}) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900", "--lang=en"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, server):
    browser.get(server.url + "/")
    browser.execute_script("localStorage.clear()")
    browser.get(server.url + "/?fresh")
    until(lambda: browser.find_elements("css selector", "#model option"))
    return browser


def choose(page, name: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(page.find_element("id", name)).select_by_value(value)


def answer(page) -> str:
    return until(lambda: page.find_element("id", "figures").text and page.find_element("id", "output").text)


def shot(page, name: str) -> None:
    if SHOTS:
        page.save_screenshot(str(Path(SHOTS) / f"{name}.png"))


def complaints(page) -> list[str]:
    return [row["message"] for row in page.get_log("browser") if row["level"] == "SEVERE"]


KINDS = ["sequence", "multilabel", "rank", "relation", "regression", "tagging", "parse", "span", "choice", "embed"]
KINDS += ["pattern", "text2text", "several"]


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("name", [*KINDS, "pretrained"])
def test_every_task_shows_its_example(page, name, language):
    choose(page, "language", language)
    choose(page, "model", name)
    page.find_element("css selector", "#examples button").click()
    assert answer(page)
    assert page.find_element("id", "task").text
    assert not page.find_elements("css selector", ".error")
    assert page.find_elements("css selector", "#tokens .piece")
    page.execute_script("document.querySelector('#tokens-box').open = true")
    shot(page, f"{name}-{language}")
    assert complaints(page) == []


@pytest.mark.parametrize("language", ["en", "ko"])
def test_passages_of_an_index(page, language):
    choose(page, "language", language)
    choose(page, "model", "index:notes")
    page.find_element("css selector", "#examples button").click()
    assert "library.txt:1" in answer(page)
    marks = [one.text for one in page.find_elements("css selector", ".hits mark")]
    assert marks  # a random model finds its answer anywhere
    shot(page, f"search-{language}")
    assert complaints(page) == []


def test_all_heads_of_pretraining_can_be_chosen(page):
    choose(page, "model", "pretrained")
    for number in range(len(page.find_elements("css selector", "#kinds button"))):
        page.find_elements("css selector", "#kinds button")[number].click()
        page.find_element("css selector", "#examples button").click()
        assert answer(page)
    assert number == 2


def test_the_keyboard_is_enough(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys):
        ActionChains(page).send_keys(*keys).perform()

    for _ in range(12):
        press(Keys.TAB)
        if page.switch_to.active_element.tag_name == "textarea":
            break
    press("ab cd")
    ActionChains(page).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    first = answer(page)
    press(Keys.TAB, Keys.ENTER)
    assert answer(page) == first
    seen = set()
    for _ in range(25):
        press(Keys.TAB)
        seen.add(page.switch_to.active_element.get_attribute("id"))
    assert {"copy-link", "copy-curl", "copy-python"} <= seen


def test_korean_from_an_input_method(page):
    """Enter that ends a syllable does not send the form."""
    area = page.find_element("css selector", "textarea")
    area.click()
    page.execute_cdp_cmd("Input.imeSetComposition", {"text": "하", "selectionStart": 1, "selectionEnd": 1})
    page.execute_cdp_cmd("Input.imeSetComposition", {"text": "한", "selectionStart": 1, "selectionEnd": 1})
    page.execute_cdp_cmd("Input.insertText", {"text": "한글 문장"})
    assert area.get_property("value") == "한글 문장"
    page.find_element("id", "send").click()
    assert answer(page)


def test_a_link_holds_the_input(page, server):
    choose(page, "model", "span")
    page.find_element("css selector", "#examples button").click()
    first = answer(page)
    address = page.current_url
    page.get("about:blank")
    page.get(address)
    assert answer(page) == first


TRICKY = 'It\'s "$HOME" `true` \\ null 한글 ab.'


@pytest.mark.parametrize("name", ["sequence", "span", "embed", "pretrained"])
def test_what_is_copied_gives_the_same_answer(page, server, name):
    """The text of both buttons is run as it is, by a shell and by Python, against the server."""
    choose(page, "model", name)
    page.execute_script("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    if name == "sequence":
        page.find_element("css selector", "textarea").send_keys(TRICKY)
        page.find_element("id", "send").click()
    else:
        page.find_element("css selector", "#examples button").click()
    answer(page)
    shown = json.loads(page.find_element("id", "raw").get_property("textContent"))
    for button, program in [("copy-curl", ["bash", "-c"]), ("copy-python", [sys.executable, "-c"])]:
        page.execute_script("window.copied = ''")
        page.find_element("id", button).click()
        text = until(lambda: page.execute_script("return window.copied"))
        done = subprocess.run([*program, text], capture_output=True, text=True, timeout=60, check=True)
        found = json.loads(done.stdout) if button == "copy-curl" else eval(done.stdout, {"__builtins__": {}})
        assert not difference(shown, found, tolerance=1e-5)
        assert page.find_element("id", "copied").text


@pytest.mark.parametrize("name", ["sequence", "rank", "tagging", "span", "pretrained"])
def test_the_words_that_an_answer_rests_on(page, server, name):
    choose(page, "model", name)
    page.find_element("css selector", "#examples button").click()
    answer(page)
    page.find_element("css selector", "#words-box summary").click()
    until(lambda: page.find_elements("css selector", "#words table td"))
    colored = page.find_elements("css selector", "#words .weighed span")
    assert len({one.value_of_css_property("background-color") for one in colored}) > 1
    assert all(one.get_attribute("title") for one in colored)
    shot(page, f"{name}-words")
    assert complaints(page) == []


def test_the_attention_of_a_head(browser, server):
    models = {"m": server.options.models["rank"]}
    with live(models, worker=WorkerSettings("", attention=True)) as other:
        browser.get(other.url + "/")
        until(lambda: browser.find_elements("css selector", "#model option"))
        browser.find_element("css selector", "#examples button").click()
        answer(browser)
        browser.find_element("css selector", "#attention-box summary").click()
        titles = "return [...document.querySelectorAll('#attention td[title]')].map((cell) => cell.title)"
        first = until(lambda: browser.execute_script(titles))
        assert len(first) == len(browser.find_elements("css selector", "#attention thead th")) ** 2
        now = browser.find_element("id", "head").get_property("value")
        choose(browser, "head", "2" if now == "1" else "1")
        until(lambda: browser.execute_script(titles) != first)
        shot(browser, "attention")
        assert complaints(browser) == []


def test_what_has_no_words_to_show(page):
    choose(page, "model", "embed")
    page.find_element("css selector", "#examples button").click()
    answer(page)
    assert not page.find_element("id", "words-box").is_displayed()


def test_a_head_that_reads_other_texts_says_so(browser, tmp_path):
    members = TASK_OPTIONS["several"]["members"] | {"z": {"metric": "pearson", "texts": 2}}
    start = toy_model(tmp_path / "start", LETTERS)
    model = make_model(start, tmp_path / "several", "several", {"members": members}, None)
    with live({"m": model}) as other:
        browser.get(other.url + "/#model=m&text=ab")
        shown = answer(browser)
        assert "undefined" not in shown
        assert browser.find_elements("css selector", "#output .hint")


def test_an_answer_stays_when_its_tokens_cannot_be_shown(page):
    choose(page, "model", "sequence")
    area = page.find_element("css selector", "textarea")
    page.execute_script(
        "arguments[0].value = 'ab '.repeat(40000); arguments[0].dispatchEvent(new Event('input'))", area
    )
    page.find_element("id", "send").click()
    assert "%" in answer(page)
    until(lambda: "100,000" in page.find_element("id", "tokens").get_property("textContent"))
    assert not page.find_elements("css selector", "#output .error")


@pytest.mark.parametrize("link", ["model=embed&source=ab", "model=relation&subject=ab", "model=rank&query=ab"])
def test_a_link_that_lacks_an_input_is_told_in_words(page, server, link):
    page.get(f"{server.url}/?{link[:9]}#{link}")
    until(lambda: page.find_elements("css selector", "#output .error"))
    assert "undefined" not in page.find_element("id", "output").text


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "nothing"])
def test_a_link_to_a_model_that_there_is_not_says_so(page, server, name):
    """Also by a name that every object of JavaScript has."""
    complaints(page)  # those about earlier pages are read and gone
    page.get(f"{server.url}/?{name}#model={name}&text=ab")
    told = until(lambda: page.find_elements("css selector", "#output .error"))
    assert name in told[0].text
    assert page.find_element("id", "task").text
    assert page.find_elements("css selector", "#fields textarea")
    assert complaints(page) == []


def test_before_an_answer_the_page_says_what_it_can_be(page):
    """And offers nothing that needs one. The examples are texts."""
    choose(page, "model", "multilabel")
    assert "x\ny" in page.find_element("id", "output").text
    for name in ("copy-link", "copy-curl", "copy-python", "raw-box", "tokens-box"):
        assert not page.find_element("id", name).is_displayed(), name
    examples = [button.text for button in page.find_elements("css selector", "#examples button")]
    assert all(len(text) > 10 for text in examples)
    choose(page, "model", "tagging")
    assert page.find_element("css selector", "#output .chips").text == "X", "the type without B- and I-"
    page.find_element("css selector", "#examples button").click()
    assert answer(page)
    assert page.find_element("id", "copy-curl").is_displayed()


def test_indexes_are_named_in_the_language_of_the_page(page):
    choose(page, "language", "ko")
    assert "검색: notes" in page.find_element("id", "model").text


def test_texts_are_never_markup(page):
    choose(page, "model", "tagging")
    area = page.find_element("css selector", "textarea")
    area.send_keys("<img src=x onerror=document.title='broken'> <b>ab</b>")
    page.find_element("id", "send").click()
    shown = answer(page)
    assert all(part in shown for part in ("<", "img", "src", ">", "ab"))
    assert page.title == "Bertie"
    assert not page.find_elements("css selector", "#output img, #output b")


def test_an_error_is_shown(page):
    choose(page, "model", "relation")
    for name, text in (("text", "ab cd"), ("subject", "zz"), ("object", "cd")):
        page.find_element("id", f"field-{name}").send_keys(text)
    page.find_element("id", "send").click()
    until(lambda: page.find_elements("css selector", ".error"))
    assert "zz" in page.find_element("css selector", ".error").text


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1440, 900)])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_any_width_and_theme(page, server, width, height, theme):
    page.set_window_size(width, height)
    choose(page, "theme", theme)
    choose(page, "model", "span")
    page.find_element("css selector", "#examples button").click()
    answer(page)
    wide = page.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "nothing sticks out to the right"
    shot(page, f"span-{theme}-{width}")
    ground, text = (
        page.execute_script(f"return getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color")
    )
    dark = sum(map(int, ground.split("(")[1].split(")")[0].split(",")[:3])) < 384
    assert dark == (theme == "dark")
    assert ground != text
    page.set_window_size(1280, 900)


def test_nothing_comes_from_elsewhere(page, server):
    found = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert found
    assert all(name.startswith(server.url) for name in found)


def test_the_list_of_routes(browser, server):
    complaints(browser)  # those about earlier pages, whose requests were refused, are read and gone
    browser.get(server.url + "/docs")
    until(lambda: len(browser.find_elements("css selector", ".opblock, tr")) > 15)
    shot(browser, "docs")
    assert complaints(browser) == []


def test_a_server_with_a_key_asks_for_it(browser, server):
    with live({"m": server.options.models["sequence"]}, keys=("secret",)) as locked:
        browser.get(locked.url + "/")
        field = until(lambda: [one for one in browser.find_elements("id", "key") if one.is_displayed()])[0]
        field.send_keys("secret\t")
        until(lambda: browser.find_elements("css selector", "#model option"))
        browser.find_element("css selector", "#examples button").click()
        assert answer(browser)
        copying = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
        browser.execute_script(copying)
        for button, program in [("copy-curl", ["bash", "-c"]), ("copy-python", [sys.executable, "-c"])]:
            browser.execute_script("window.copied = ''")
            browser.find_element("id", button).click()
            text = until(lambda: browser.execute_script("return window.copied"))
            environment = {**os.environ, "BERTIE_API_KEY": "secret"}
            done = subprocess.run([*program, text], capture_output=True, timeout=60, check=True, env=environment)
            assert b"answers" in done.stdout
            assert "secret" not in text


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_model_in_use_and_two_versions(browser, tmp_path, language):
    from bertie.apps.serve.versions import Versions

    models = make_models(tmp_path, ["sequence"])
    versions = Versions("old", "new", shadow=True)
    with live({"old": models["sequence"], "new": models["sequence"]}, versions=versions) as running:
        for text in ("ab cd", "ef", "gh ij kl"):
            running.ok("/predict", {"inputs": text, "model": "old"})
        until(lambda: running.get("/traffic").json()["versions"]["compared"] == 3)
        browser.get(running.url + "/")
        until(lambda: browser.find_elements("css selector", "#model option"))
        choose(browser, "language", language)
        browser.execute_script("document.querySelector('#use-box').open = true")
        text = until(lambda: browser.find_element("id", "use").text)
        assert "100.0%" in text
        assert ("agree" if language == "en" else "일치") in text
        shot(browser, f"use-{language}")
        assert complaints(browser) == []

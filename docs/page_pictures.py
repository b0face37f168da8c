"""Makes docs/images/serve-*.png: the page of a server, as a browser shows it, on the models that come with Bertie.

python docs/page_pictures.py        needs selenium, chromium with its driver, and a Korean font
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webelement import WebElement

IMAGES = Path(__file__).parent / "images"
PORT = 3457
BEFORE = (
    "bertie sample reviews --rows 600 -o reviews.csv",
    "bertie finetune starter-en --train reviews.csv -o runs/reviews",
    "bertie index python:stdlib -o python-docs",
)
SERVE = "bertie serve names-en reviews=runs/reviews questions-en sentiment-ko --index python=python-docs --attention"
REVIEW = "The rooms were dark, but the breakfast was wonderful and the staff were kind."
PICTURES = {  # name -> what is asked, the width and the height of the window, and the page's settings
    "page": ({"model": "names-en", "text": "Angela Merkel met Emmanuel Macron in Berlin."}, (1200, 700), {}),
    "words": ({"model": "reviews", "text": REVIEW}, (1200, 2300), {}),
    "search": ({"model": "index:python", "query": "How many bits does an IPv6 address have?"}, (1200, 720), {}),
    "dark": (
        {"model": "sentiment-ko", "text": "배우들의 연기가 훌륭하고 이야기도 재미있다."},
        (400, 1400),
        {"language": "ko", "theme": "dark"},
    ),
}


def take(browser: webdriver.Chrome, name: str) -> None:
    """Asks what a picture shows, several times so that the model is warm, and saves the picture."""
    asked, (width, height), settings = PICTURES[name]
    address = f"http://127.0.0.1:{PORT}"
    browser.set_window_size(width, height)
    browser.get(f"{address}/health")
    for key, value in ({"language": "en", "theme": "light"} | settings).items():
        browser.execute_script("localStorage.setItem(arguments[0], arguments[1])", key, value)
    browser.get(f"{address}/#{urlencode(asked)}")
    browser.refresh()
    shown: WebElement | None = None
    for _ in range(5):
        time.sleep(2)
        browser.find_element("id", "send").click()
    time.sleep(3)
    if name == "words":
        for box in ("words-box", "attention-box"):
            browser.find_element("css selector", f"#{box} summary").click()
            time.sleep(4)
        shown = browser.find_element("id", "output").find_element("xpath", "./ancestor::section")
    (shown.screenshot if shown else browser.save_screenshot)(str(IMAGES / f"serve-{name}.png"))


def main() -> None:
    """Starts a server and takes the pictures."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as folder:
        for command in BEFORE:
            subprocess.run(command.split(), cwd=folder, check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen([*SERVE.split(), "--port", str(PORT)], cwd=folder, stderr=subprocess.DEVNULL)
        try:
            for _ in range(120):
                time.sleep(1)
                try:
                    urlopen(f"http://127.0.0.1:{PORT}/readyz").close()
                    break
                except URLError:
                    continue
            browser = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
            for name in sys.argv[1:] or PICTURES:
                take(browser, name)
            browser.quit()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()

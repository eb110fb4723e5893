"""A page in a real, headless Chromium, and run folders to make reports of."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.program import rows, run, write_rows

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "reports" / "older_run"  # which stays as it is when others are published
DESKTOP, PHONE = (1360, 900), (390, 844)


def start_browser():
    """Skips the test where there is no browser; with NOISEFLOOR_REQUIRE_BROWSER (as in .ci/run) that is a failure."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    lacking = [name for name, there in (("selenium", webdriver), ("chromium", chromium), ("chromedriver", driver)) if not there]
    if lacking:
        message = f"no {', '.join(lacking)}: reports are not opened in a browser (scripts/setup --browser installs them)"
        if os.environ.get("NOISEFLOOR_REQUIRE_BROWSER"):
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    # A container's /dev/shm is small, and its root has no sandbox.
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


class Page:
    def __init__(self, browser):
        self.browser = browser

    def open(self, file, size=DESKTOP, scheme="light", fragment=""):
        """Loads the page anew, with no network, and waits until it has drawn."""
        self.browser.get_log("browser")
        command = self.browser.execute_cdp_cmd
        command("Network.enable", {})
        command("Network.emulateNetworkConditions", {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
        command("Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})
        command("Emulation.setTouchEmulationEnabled", {"enabled": size == PHONE})
        command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.browser.get("about:blank")
        self.browser.get(f"file://{file}{fragment}")
        return self

    def js(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait(self, condition, what, seconds=120):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, seconds).until(lambda _: self.js(f"return {condition}"), what)

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def click(self, selector):
        from selenium.webdriver.common.by import By

        found = self.browser.find_element(By.CSS_SELECTOR, selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    def draw_all(self):
        """Panels are drawn when they come near the window."""
        self.js("for (const p of document.querySelectorAll('.panel')) p.scrollIntoView({block: 'center'})")
        for _ in range(20):
            self.js("""const p = [...document.querySelectorAll('.panel')].find((panel) => panel.stale);
                       if (p) p.scrollIntoView({block: 'center'});""")
            if self.js("return ![...document.querySelectorAll('.panel')].some((panel) => panel.stale)"):
                return
            self.wait("true", "a frame")

    def points(self):
        """op -> the indices of the rows that its roofline shows."""
        self.draw_all()
        return self.js("""const found = {};
            for (const panel of document.querySelectorAll('.panel'))
              found[panel.dataset.op] = panel.querySelector('.plot').data.flatMap((trace) => trace.customdata ?? []);
            return found;""")

    def table(self):
        return self.js("return [...document.querySelectorAll('#rows tbody tr')].map((row) => Number(row.dataset.row))")

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((found) => found.textContent)", selector)


def report(folder, **environment):
    """`noisefloor roofline FOLDER`."""
    return run("roofline", folder, env={**os.environ, **environment})


def copy_recorded(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("sweep.csv", "ceilings.csv", "env.json", "networks.csv"):
        shutil.copy(RECORDED / name, folder / name)
    return folder


def many_rows(folder, count=5000):
    """`count` rows with the recorded ones' texts and numbers, no two of one key."""
    copy_recorded(folder)
    recorded, made = rows(folder), []
    for i in range(count):
        row = dict(recorded[i % len(recorded)])
        row["problem"] += f",seed={i // len(recorded)}" if i >= len(recorded) else ""
        row["networks"] = f"{row['networks']};network{i % 12}:{i % 30 + 1}" if row["networks"] else f"network{i % 12}:1"
        made.append(row)
    write_rows(folder, made)
    (folder / "networks.csv").unlink()
    return folder

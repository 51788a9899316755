"""A real browser for tests and benchmarks: Chromium without a window, spoken to through two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_START = """
import os, sys
reading, writing = (os.dup(os.dup(os.dup(int(each)))) for each in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Starts Chromium, which reads commands from file descriptor 3 and answers on 4."""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Return the program of a browser, or None."""
    wanted = os.environ.get("QUACKLAKE_TEST_BROWSER")
    return wanted or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """Chromium with a page, or more in tabs. ``call`` speaks the DevTools protocol; the rest is what tests need."""

    def __init__(self, program: str, profile: Path) -> None:
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _START,
                str(out_read),
                str(in_write),
                program,
                *options,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(out_read, in_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(out_read)
        os.close(in_write)
        self._to, self._from = os.fdopen(out_write, "wb", 0), os.fdopen(in_read, "rb", 0)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        self.tab()

    def tab(self) -> tuple[str, str]:
        """Open another tab, go to it, and return what ``switch`` takes."""
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return target, str(self._session)

    def switch(self, tab: tuple[str, str]) -> None:
        """Go to a tab that is open."""
        self._session = None
        self.call("Target.activateTarget", targetId=tab[0])
        self._session = tab[1]

    def new_tab(self) -> str:
        """Open another tab of the same window, as if by hand, and return its name for ``show``."""
        shown, self._session = self._session, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        made = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        self._session = made
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self._session = shown
        return made

    def show(self, tab: str) -> str:
        """Speak to a tab from now on, and return the name of the one before."""
        assert self._session is not None
        before, self._session = self._session, tab
        self.call("Page.bringToFront")
        return before

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            block = self._from.read(65536)
            if not block:
                raise RuntimeError("the browser has ended")
            self._buffer += block
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def size(self, width: int, height: int, scheme: str = "light", media: str = "") -> None:
        """Set the size of the page, and whether it is light or dark, on the screen or printed."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, url: str) -> None:
        """Open a page, and wait until its charts are painted."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.until(
            "document.readyState === 'complete'"
            " && [...document.querySelectorAll('.chart')].every(each => each.dataset.painted)"
        )

    def run(self, script: str) -> Any:
        """Run JavaScript, wait for what it promises, and return its value."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 20) -> None:
        """Wait until JavaScript is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.02)

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for since it was opened."""
        self.run("0")
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    def problems(self) -> list[str]:
        """Return exceptions of the page, and what its console calls errors."""
        self.run("0")
        kinds: dict[str, Callable[[dict[str, Any]], str | None]] = {
            "Runtime.exceptionThrown": lambda params: str(params["exceptionDetails"])[:300],
            "Log.entryAdded": lambda params: params["entry"]["text"] if params["entry"]["level"] == "error" else None,
        }
        found = (kinds[each["method"]](each["params"]) for each in self.events if each.get("method") in kinds)
        return [each for each in found if each]

    def screenshot(self) -> bytes:
        """Return a picture of the page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the browser."""
        self._session = None
        with suppress(RuntimeError, OSError):
            self.call("Browser.close")
        for file in (self._to, self._from):
            file.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

"""The dashboard in a real browser: what tests say to it, and what they read from it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_core_python

from services.browser import Browser

AXE = (Path(axe_core_python.__file__).with_name("axe.min.js")).read_text(encoding="utf-8")
_KEYS = {
    "Enter": 13,
    "Tab": 9,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "End": 35,
    "Home": 36,
}
CONTROL = 2
_PLACE = """new Promise(done => {
    const one = FOUND;
    if (!one) return done([0, 0, "it is gone"]);
    one.scrollIntoView({block: "center"});
    const before = one.getBoundingClientRect();
    requestAnimationFrame(() => requestAnimationFrame(() => {
        const box = one.getBoundingClientRect();
        const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
        const top = document.elementFromPoint(x, y);
        const still = box.width > 0 && ["x", "y", "width", "height"].every(side => box[side] === before[side]);
        const over = top && (one.contains(top) || (top.contains(one) && !top.matches("html, body")));
        done([x, y, !one.isConnected || !still ? "it moves" : over ? "hit" : `below ${top?.outerHTML.slice(0, 200)}`]);
    }));
})"""
"""Finds the place at which an element can be clicked, after two frames."""
PICTURES = os.environ.get("QUACKLAKE_TEST_PICTURES")
"""A folder for the pictures of the guide."""


class Page:
    """A tab of the browser with the dashboard of a service."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser = browser
        self.url = url

    def run(self, script: str) -> Any:
        return self.browser.run(script)

    def enter(self, token: str | None, route: str = "") -> None:
        """Open the dashboard as if the tab were new, with a token in its address."""
        self.browser.call("Page.navigate", url=f"{self.url}/health/live")
        self.browser.until("document.readyState === 'complete' && location.pathname.endsWith('/live')")
        self.run("sessionStorage.clear(), localStorage.clear()")
        self.browser.events.clear()
        self.browser.call("Page.navigate", url=f"{self.url}/ui/" + ("" if token is None else f"#token={token}"))
        if token is not None:
            self.wait("!!document.querySelector('.shell')")
            if route:
                self.go(route)

    def go(self, route: str) -> None:
        self.run(f"location.hash = {json.dumps('#/' + route)}")

    def wait(self, script: str, seconds: float = 45) -> None:
        """Wait until JavaScript is true; say what the page shows when it does not become so."""
        try:
            self.browser.until(script, seconds)
        except TimeoutError:
            shown = self.run("document.body.innerText")[:1500]
            raise AssertionError(f"not true: {script}\n{self.browser.problems()}\n{shown}") from None

    def see(self, selector: str, text: str = "") -> None:
        """Wait for an element, and for a text in it."""
        self.wait(
            f"[...document.querySelectorAll({json.dumps(selector)})].some(each => each.textContent.includes({json.dumps(text)}))"
        )

    def gone(self, selector: str) -> None:
        self.wait(f"!document.querySelector({json.dumps(selector)})")

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.textContent.trim())"
        )
        return found

    def click(self, selector: str, text: str = "") -> None:
        """Click an element where a person would: once it is there, stands still and nothing covers it."""
        self.see(selector, text)
        found = f"""(() => {{
            const all = [...document.querySelectorAll({json.dumps(selector)})];
            return all.find(each => each.textContent.includes({json.dumps(text)}));
        }})()"""
        end = time.monotonic() + 45
        while True:
            x, y, hit = self.run(_PLACE.replace("FOUND", found))
            if hit == "hit":
                break
            if time.monotonic() > end:
                raise AssertionError(
                    f"cannot click {selector} {text}: {hit}\n{self.run('document.body.innerText')[:1500]}"
                )
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def fill(self, selector: str, text: str) -> None:
        """Type a text into a field in place of what is there."""
        self.see(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self.browser.call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose a value of a select once it is there, or of a slider."""
        self.see(selector)
        option = f"one.tagName !== 'SELECT' || [...one.options].some(each => each.value === {json.dumps(value)})"
        self.wait(f"(one => {option})(document.querySelector({json.dumps(selector)}))")
        self.run(f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.value = {json.dumps(value)};
            one.dispatchEvent(new Event("input", {{bubbles: true}}));
            one.dispatchEvent(new Event("change", {{bubbles: true}}));
        }})()""")

    def press(self, key: str, modifiers: int = 0) -> None:
        code = _KEYS.get(key, ord(key[0].upper()))
        for kind in ("rawKeyDown", "keyUp"):
            self.browser.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers, code=key
            )

    def write(self, sql: str) -> None:
        """Write a statement in place of the one in the editor."""
        self.wait("!!document.querySelector('.code-host')?.shadowRoot?.querySelector('.cm-content')")
        self.run("document.querySelector('.code-host').shadowRoot.querySelector('.cm-content').focus()")
        self.browser.call("Input.dispatchKeyEvent", type="rawKeyDown", key="a", code="KeyA", windowsVirtualKeyCode=65, modifiers=CONTROL, commands=["selectAll"])  # fmt: skip
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", key="a", code="KeyA", windowsVirtualKeyCode=65)
        self.browser.call("Input.insertText", text=sql)
        self.press("Escape")

    def ask(self, sql: str) -> None:
        """Run a statement, and wait for its end."""
        self.write(sql)
        self.wait("!!document.querySelector('.run:not(:disabled)')")
        self.run("document.querySelector('.said')?.setAttribute('data-done', 'old')")
        self.click(".run")
        self.wait("document.querySelector('.said')?.dataset.done === 'yes'", 60)

    def cells(self) -> list[list[str]]:
        """Return the rows of the grid that are drawn, without their numbers."""
        found: list[list[str]] = self.run(
            "[...document.querySelectorAll('.grid .line')].map(row =>"
            " [...row.querySelectorAll('[role=cell]')].slice(1).map(cell => cell.textContent))"
        )
        return found

    def violations(self) -> list[str]:
        """Return what axe finds wrong with the page as it is."""
        self.run(f"window.axe ?? {AXE}; 0")
        found: list[str] = self.run(
            "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(each =>"
            " each.id + ': ' + each.nodes.map(node => node.html.slice(0, 160) + ' ' + (node.any[0]?.message ?? '')).slice(0, 3).join(' | ')))"
        )
        return found

    def forgive(self, text: str, times: int = 1) -> None:
        """Wait until the browser has noted problems that the test has made, which it may do late, and forget them.

        Chromium would also keep the look of what is typed over in the editor, which the policy of the page forbids.
        """
        end = time.monotonic() + 45
        while (
            len(found := [each for each in self.browser.problems() if not each.startswith("Applying inline style")])
            < times
        ):
            assert time.monotonic() < end, found
        assert all(text in each for each in found), found
        self.browser.events.clear()

    def hosts(self) -> set[str]:
        """Return the hosts that the page has asked since it was opened."""
        return {url.split("/")[2] for url in self.browser.requests() if url.startswith("http")}

    def figure(self, label: str) -> str:
        """Return a figure at the head of a page."""
        found: str = self.run(
            f"[...document.querySelectorAll('.figure')].find(each => each.querySelector('dt').textContent === {json.dumps(label)})"
            "?.querySelector('.value').textContent ?? ''"
        )
        return found

    def shows(self, label: str, value: str) -> None:
        """Wait for a figure at the head of a page."""
        self.wait(
            f"[...document.querySelectorAll('.figure')].some(each => each.querySelector('dt').textContent === {json.dumps(label)}"
            f" && each.querySelector('.value').textContent === {json.dumps(value)})"
        )


def clean(page: Page) -> None:
    """Assert that axe finds nothing, on light and on dark screens."""
    for scheme in ("light", "dark"):
        page.browser.size(1280, 800, scheme)
        assert page.violations() == [], scheme
    page.browser.size(1280, 800)


def shift(page: Page, route: str, sign: str) -> float:
    """Load a page anew; return by how much of the screen its parts have moved meanwhile, as browsers measure it."""
    page.go(route)
    page.browser.call("Page.reload")
    page.wait("performance.getEntriesByType('navigation')[0]?.type === 'reload' && !!document.querySelector('.shell')")
    page.see(sign)
    found: float = page.run("""new Promise(done => {
        let sum = 0;
        const add = list => list.forEach(each => { if (!each.hadRecentInput) sum += each.value; });
        const seen = new PerformanceObserver(list => add(list.getEntries()));
        seen.observe({type: "layout-shift", buffered: true});
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
            add(seen.takeRecords());
            done(sum);
        })));
    })""")
    return found


def tabbed(page: Page) -> list[str]:
    """Press Tab through the page; return what can be clicked but is not reached, or does not show that it is."""
    wanted = """[...document.querySelectorAll("a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), summary, [tabindex='0']")]
        .filter(each => each.checkVisibility({visibilityProperty: true}) && each.tabIndex >= 0 && !each.closest("dialog, .code-host"))"""
    most = page.run(f"(found => (found.forEach((each, index) => each.dataset.reach = index), found.length))({wanted})")
    page.run(
        "(document.activeElement?.blur(), window.getSelection()?.removeAllRanges(), document.body.tabIndex = -1, document.body.focus(), 0)"
    )
    hidden: list[str] = []
    for _ in range(most + 16):
        page.press("Tab")
        said = page.run("""(one => {
            one.dataset.reached = "yes";
            const looks = [one, one.parentElement ?? one].map(each => getComputedStyle(each));
            const drawn = one instanceof SVGElement && getComputedStyle(one.querySelector("rect")).strokeWidth !== "1px";
            const seen = drawn || looks.some(each => each.outlineStyle !== "none" || each.boxShadow !== "none");
            return one === document.body || seen || one.shadowRoot ? "" : `no focus to see: ${one.outerHTML.slice(0, 120)}`;
        })(document.activeElement ?? document.body)""")
        if said:
            hidden.append(said)
    missed: list[str] = page.run(
        "[...document.querySelectorAll('[data-reach]:not([data-reached])')].map(each => `not reached: ${each.outerHTML.slice(0, 120)}`)"
    )
    page.run(
        "document.body.removeAttribute('tabindex'), document.querySelectorAll('[data-reach], [data-reached]').forEach(each => (delete each.dataset.reach, delete each.dataset.reached))"
    )
    return hidden + missed


def picture(page: Page, name: str, tmp_path: Path, scheme: str = "light", width: int = 1280) -> None:
    """Take a picture for the guide, light or dark, of a wide screen or of a telephone."""
    page.browser.size(width, 800, scheme)
    folder = tmp_path if PICTURES is None else Path(PICTURES)
    page.run("document.activeElement?.blur()")
    page.run("new Promise(done => setTimeout(done, 250))")
    taken = page.browser.screenshot()
    assert 5_000 < len(taken) < 200_000
    (folder / f"dashboard-{name}.png").write_bytes(taken)
    page.browser.size(1280, 800)


Opened = Callable[..., Page]

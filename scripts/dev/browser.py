#!/usr/bin/env python3
"""A headless Chromium for tests of pages: opened, clicked, typed into and asked through its DevTools pipe.

Needs Chromium (Debian's `chromium`, or $CHROMIUM) and nothing else. As a command, writes a picture of a whole page:
browser.py PAGE.html -o PICTURE.png [--dark] [--width PIXELS]
"""
import argparse
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
SWITCHES = ["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
TIMEOUT = 60  # seconds for one answer, also on a machine that is busy with other tests

# The elements that a selector names; of those with a text, the innermost that hold it.
FIND = """((selector, text) => [...document.querySelectorAll(selector)].filter(element => text === null || (
    element.textContent.includes(text) && ![...element.children].some(child => child.textContent.includes(text)))))"""

# What a person could read of the page: a space between the texts of two elements, none where a
# word may break.
READ = """(() => {
  const words = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    if (!walker.currentNode.parentElement.closest('script, style')) words.push((walker.currentNode.previousSibling?.nodeName === 'WBR' ? '' : ' ') + walker.currentNode.data);
  return words.join('').replace(/\\s+/g, ' ');
})()"""


class BrowserError(Exception):
    """The browser or the page does not do what it was told."""


class Browser:
    """A running Chromium with a profile of its own."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        # Chromium reads commands from descriptor 3 and writes answers to 4: the ends it gets are
        # moved out of the way first.
        command, self.commands = os.pipe()
        self.answers, answer = os.pipe()
        given = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (command, answer)]
        self.process = subprocess.Popen(
            [CHROMIUM, *SWITCHES, f"--user-data-dir={self.profile.name}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(3, 4),
            preexec_fn=lambda: [os.dup2(given[0], 3), os.dup2(given[1], 4)])
        for end in (command, answer, *given):
            os.close(end)
        self.read = b""
        self.number = 0
        self.pages = {}

    def close(self):
        try:
            self.send("Browser.close", {}, None)
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # helpers that outlive it, too
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def page(self, width=1200, height=900, scheme="light"):
        """A new tab of that size; `scheme` is what its pages see as prefers-color-scheme."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        return page

    def send(self, method, arguments, session):
        self.number += 1
        message = {"id": self.number, "method": method, "params": arguments, **({"sessionId": session} if session else {})}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        return self.number

    def call(self, method, arguments, session=None):
        number = self.send(method, arguments, session)
        deadline = time.monotonic() + TIMEOUT
        while True:
            message = self.next_message(deadline, method)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]

    def next_message(self, deadline, waiting_for):
        """The next message; events are given to their page on the way."""
        while b"\0" not in self.read:
            if not select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"no answer in {TIMEOUT} s: {waiting_for}")
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                raise BrowserError(f"{CHROMIUM} has ended: {waiting_for}")
            self.read += piece
        line, self.read = self.read.split(b"\0", 1)
        message = json.loads(line)
        if message.get("sessionId") in self.pages and "method" in message:
            self.pages[message["sessionId"]].take_event(message["method"], message["params"])
        return message


class Page:
    """A tab. `errors` are exceptions and messages of errors, `requests` the addresses that it asked for."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.errors, self.requests, self.loads = [], [], 0

    def take_event(self, method, event):
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loads += 1

    def call(self, method, **arguments):
        return self.browser.call(method, arguments, self.session)

    def close(self):
        self.browser.call("Target.closeTarget", {"targetId": self.target})
        del self.browser.pages[self.session]

    def goto(self, url):
        """Loads the page at the address, anew where it is open already."""
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        loads = self.loads
        if "errorText" in (answer := self.call("Page.navigate", url=url)):
            raise BrowserError(f"{url}: {answer['errorText']}")
        deadline = time.monotonic() + TIMEOUT
        while self.loads == loads or self.evaluate("location.href") == "about:blank":
            self.browser.next_message(deadline, url)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + TIMEOUT
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise BrowserError(f"not so in {TIMEOUT} s: {expression}")
            time.sleep(0.05)

    def texts(self, selector, text=None):
        """What the elements say that the selector names and that hold the text."""
        return self.evaluate(f"{FIND}({json.dumps(selector)}, {json.dumps(text)}).map(element => element.innerText)")

    def text(self, selector):
        (text,) = self.texts(selector)
        return text

    def count(self, selector, text=None):
        return len(self.texts(selector, text))

    def read(self):
        """All that the page says, folded parts too."""
        return self.evaluate(READ)

    def click(self, selector, text=None, nth=0):
        """Presses the mouse where the element is; it must lie there for a person, too."""
        where = self.evaluate(f"""(() => {{
          const element = {FIND}({json.dumps(selector)}, {json.dumps(text)})[{nth}];
          if (!element) return null;
          element.scrollIntoView({{block: 'nearest', inline: 'nearest'}});
          const box = element.getClientRects()[0], x = box.x + box.width / 2, y = box.y + box.height / 2;
          const hit = document.elementFromPoint(x, y);
          return {{x, y, hit: element.contains(hit) || hit?.contains(element)}};
        }})()""")
        if not where or not where["hit"]:
            raise BrowserError(f"{selector} {text or ''} [{nth}]: {'covered by another element' if where else 'not there'}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=where["x"], y=where["y"], button="left", clickCount=1)

    def type_into(self, selector, text):
        """Replaces what stands in a field."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self.call("Input.insertText", text=text)

    def picture(self, path):
        """Writes the whole page, as long as it is, as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1200)
    arguments = parser.parse_args()
    with Browser() as browser:
        page = browser.page(width=arguments.width, scheme="dark" if arguments.dark else "light")
        page.goto(arguments.page.absolute().as_uri())
        page.picture(arguments.output)


if __name__ == "__main__":
    main()

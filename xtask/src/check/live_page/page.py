"""The live page in headless Chromium: `cargo xtask check live-page` starts the cluster, and runs this.

`steps.js` has the steps on the page. PICTURE shows the page while the instance PID is frozen.
"""

import argparse
import json
import os
import pathlib
import signal
import time

from playwright.sync_api import Browser, Page, sync_playwright

STEPS = (pathlib.Path(__file__).parent / "steps.js").read_text()
LIMIT_MS = 60_000
# A name that a page which took it for markup would fall to pieces of.
HOSTILE = '<img src=x onerror="window.hostile=1"><script>window.hostile=2</script>'
# That no key and a wrong one are refused is what is looked at, and a browser logs it.
EXPECTED = ("status of 401", "status of 400", "/favicon.ico")


def opened(browser: Browser, url: str, script: str) -> tuple[Page, list[str]]:
    """A page on which `script` runs before its own, and what the browser complains about on it."""
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(LIMIT_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def logged(message) -> None:
        said = f"{message.text} {message.location}"
        if message.type == "error" and not any(part in said for part in EXPECTED):
            complaints.append(said)

    page.on("console", logged)
    page.add_init_script(script)
    page.goto(url)
    return page, complaints


def close(page: Page, complaints: list[str]) -> None:
    """No script threw anything, and nothing was refused by the page's policy."""
    page.evaluate("0")
    assert not complaints, complaints
    page.close()


def hostile(value):
    """The value with a hostile text for every text."""
    match value:
        case str():
            return HOSTILE
        case list():
            return [hostile(part) for part in value]
        case dict():
            return {name: hostile(part) for name, part in value.items()}
        case _:
            return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "key", "model", "picture"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--load-seconds", type=float, required=True)
    args = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", chromium_sandbox=False)
        end = time.monotonic() + args.load_seconds
        page, complaints = opened(browser, args.url, STEPS)
        page.evaluate(f"steps.logIn({json.dumps(args.key)}, {json.dumps(args.model)})")
        page.evaluate("steps.showsAClusterThatIsWell()")
        time.sleep(max(0.0, end - time.monotonic()))
        state = page.evaluate(f"steps.state({json.dumps(args.key)})")

        # An instance shows as down while it is frozen, on a small screen, too.
        os.kill(args.pid, signal.SIGSTOP)
        page.evaluate("steps.showsAFrozenInstance()")
        time.sleep(2)
        page.screenshot(path=args.picture, full_page=True)
        page.set_viewport_size({"width": 400, "height": 900})
        page.evaluate("steps.fitsASmallScreen()")
        page.set_viewport_size({"width": 1280, "height": 1000})
        os.kill(args.pid, signal.SIGCONT)
        page.evaluate("steps.showsThatAllAreUp()")
        page.evaluate("steps.switches()")
        close(page, complaints)

        # Names and labels that hold markup are shown as they are.
        assert state["models"][0]["decoded"], "no group was decoded"
        answer = json.dumps(hostile(state))
        script = f"{STEPS}\nwindow.fetch = async () => new Response({json.dumps(answer)});"
        page, complaints = opened(browser, args.url, script)
        page.evaluate(f"steps.showsMarkupAsText({json.dumps(HOSTILE)})")
        close(page, complaints)
        browser.close()


main()

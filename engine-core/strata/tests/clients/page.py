"""Uses the web page in a real Chromium: sends, sees text stream, stops, regenerates, reloads, and looks
for what keeps people with a screen reader or a keyboard out.

Called by tests/cli/serve.rs with the server's address, the browser's path, and (or `-`) the path of
axe-core's script; a fourth argument is a folder for pictures.
"""

import sys

from playwright.sync_api import sync_playwright

ADDRESS, BROWSER, AXE = sys.argv[1:4]
PICTURES = sys.argv[4] if len(sys.argv) > 4 else None

problems = []


def picture(page, name):
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/{name}.png")


def accessible(page, name):
    if AXE == "-":
        return
    # The page's policy loads no other script, so axe goes in through the debugger.
    with open(AXE) as script:
        page.evaluate(script.read())
    found = page.evaluate("async () => (await axe.run()).violations")
    grave = [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in found if each["impact"] in ("serious", "critical")]
    assert not grave, (name, grave)


def until(page, expression):
    """The page's policy allows no text as code, so the browser cannot wait by itself."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never so: {expression}")


def ask(page, text):
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def finished(page):
    page.wait_for_selector("#send:not([hidden])", timeout=120_000)


with sync_playwright() as play:
    browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    outside = []
    page.on("request", lambda request: None if request.url.startswith(ADDRESS) else outside.append(request.url))
    page.goto(ADDRESS)
    until(page, "document.getElementById('state').textContent === 'ready'")
    accessible(page, "empty")

    # An answer streams.
    page.click("#show-settings")
    page.fill("#max_tokens", "40")
    page.fill("#temperature", "0")
    accessible(page, "settings")
    page.click("#show-settings")
    ask(page, "Tell me a story about a river.")
    page.wait_for_selector(".assistant .said:not(:empty)")
    early = page.inner_text(".assistant .said")
    finished(page)
    text = page.inner_text(".assistant .said")
    assert len(text) > len(early) > 0, (early, text)
    assert "per second" in page.inner_text(".timing")
    picture(page, "light")
    accessible(page, "answered")
    print("ok streaming")

    # Greedy again: the same text.
    page.click("text=Regenerate")
    finished(page)
    assert page.inner_text(".assistant .said") == text
    print("ok regenerate")

    # Stopped by the keyboard; what was written stays.
    page.click("#show-settings")
    page.fill("#max_tokens", "2000")
    page.click("#show-settings")
    ask(page, "Write a very long story about a forest.")
    until(page, "document.querySelectorAll('.assistant .said')[1]?.textContent.length > 20")
    page.keyboard.press("Escape")
    finished(page)
    assert page.locator(".assistant").count() == 2
    print("ok stop")

    # Kept over a reload.
    page.reload()
    page.wait_for_selector(".assistant")
    assert page.locator("#messages > li").count() == 4
    assert page.inner_text(".assistant .said") == text
    print("ok history")

    # What a model writes cannot run: it goes through the page's own renderer.
    hostile = [
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>",
        "[click](javascript:alert(1))",
        "[click](data:text/html,<script>alert(1)</script>)",
        "![picture](https://evil.example/x.png)",
        "```html\n<script>alert(1)</script>\n```",
        "| <b>a</b> | b |\n|---|---|\n| <svg onload=alert(1)> | c |",
        "**<iframe src=https://evil.example>**",
    ]
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    result = page.evaluate(
        """async (texts) => {
            const { render } = await import('/page/markdown.js');
            const box = document.createElement('div');
            document.body.append(box);
            for (const text of texts) box.append(...render(text));
            const bad = box.querySelectorAll('script, img, iframe, svg, [onerror], [onload]').length;
            const links = [...box.querySelectorAll('a')].map((a) => a.protocol);
            box.remove();
            return { bad, links };
        }""",
        hostile,
    )
    assert result["bad"] == 0, result
    assert set(result["links"]) <= {"https:"}, result
    rendered = page.evaluate(
        """async () => {
            const { render } = await import('/page/markdown.js');
            const box = document.createElement('div');
            box.append(...render('# T\\n\\n- a\\n  - b\\n- c\\n\\n1. x\\n2. y\\n\\n**bold** *it* `code`\\n\\n```rust\\nfn main() {}\\n```\\n\\n> q\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |'));
            return box.innerHTML;
        }"""
    )
    for part in ["<h3>T</h3>", "<li>a<ul><li>b</li></ul></li>", "<ol><li>x</li><li>y</li></ol>", "<strong>bold</strong>",
                 "<em>it</em>", "<code>code</code>", "fn main() {}", "<blockquote>", "<td>2</td>"]:
        assert part in rendered, (part, rendered)
    print("ok markdown")

    page.click("#show-monitor")
    until(page, "document.querySelectorAll('#recent tbody tr').length > 1")
    assert "Backend" in page.inner_text("#figures")
    accessible(page, "monitor")
    picture(page, "monitor")
    page.click("#theme")
    accessible(page, "dark")
    picture(page, "dark")
    page.click("#show-monitor")

    page.set_viewport_size({"width": 375, "height": 700})
    page.wait_for_timeout(300)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 375, wide
    accessible(page, "phone")
    picture(page, "phone")
    page.click("#show-chats")
    picture(page, "phone-chats")
    accessible(page, "phone-chats")
    print("ok phone")

    # With the keyboard alone: the box is reached, the message goes out.
    page.set_viewport_size({"width": 1280, "height": 800})
    page.reload()
    page.wait_for_selector(".assistant")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "prompt"
    print("ok keyboard")
    browser.close()

assert not outside, outside
assert not problems, problems

"""Opens a page in Debian's chromium without a screen, as people see it: what is drawn, and how."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")

# Added to the page by the test, not by the product: it writes what it finds into the page itself.
_PROBE = """<script>
addEventListener("load", () => {
  const box = element => { const r = element.getBoundingClientRect(); return [r.width, r.height]; };
  const found = {
    page: [document.documentElement.scrollWidth, innerWidth],
    plots: [...document.querySelectorAll("svg")].map(svg => ({
      label: svg.getAttribute("aria-label"), size: box(svg),
      marks: [...svg.querySelectorAll(".line, .bar, .dot")].map(mark => ({
        size: box(mark), paint: getComputedStyle(mark).stroke + getComputedStyle(mark).fill,
      })),
      texts: [...svg.querySelectorAll("text")].map(text => {
        const b = text.getBoundingClientRect(), s = svg.getBoundingClientRect();
        return [text.textContent, b.left - s.left, s.right - b.right, b.height];
      }),
    })),
    requests: performance.getEntriesByType("resource").map(entry => entry.name),
  };
  document.body.dataset.found = JSON.stringify(found);
});
</script>"""


@dataclass(frozen=True)
class Look:
    """`found` is what the probe tells, `console` what the page wrote to the browser's console."""

    found: dict[str, Any]
    console: list[str]


def look(page: Path, width: int, folder: Path) -> Look:
    """Open a page in a window that is so many pixels wide; `folder` is for the browser's files."""
    assert CHROMIUM
    probed = folder / f"probed-{width}.html"
    probed.write_text(page.read_text().replace("</body>", f"{_PROBE}</body>"))
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900",
            "--virtual-time-budget=2000", "--dump-dom", probed.as_uri(),
        ],
        check=True, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    told = re.search(r'data-found="([^"]*)"', done.stdout)
    assert told, done.stderr[-2000:]
    console = re.findall(r"CONSOLE.*", done.stderr)
    return Look(json.loads(unescape(told[1])), console)

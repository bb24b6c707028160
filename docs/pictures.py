"""Makes the pictures of README.md: `make pictures`. The report's needs Chromium.

The terminal's picture has no font of its own and makes no request. A test compares its text with what the command prints.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

IMAGES = Path(__file__).resolve().parent / "images"
STORES = Path(__file__).resolve().parent.parent / "fixtures" / "stores"
COLUMNS = 80
# rich's own template loads a font from another host
_TEMPLATE = "\n".join(
    part.partition("}}")[2] if i else part for i, part in enumerate(CONSOLE_SVG_FORMAT.split("@font-face"))
)


def damaged_store(folder: Path) -> Path:
    """Make the store of `make demo`: after a crash, with a flipped bit in a body."""
    with tarfile.open(STORES / "5.4.0-clean.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    store = (folder / "5.4.0-clean").rename(folder / "store")
    log = store / "commitlog" / "00000000000000196608"
    content = bytearray(log.read_bytes())
    content[47521] ^= 1
    log.write_bytes(content)
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    return store


def terminal(folder: Path, *words: str) -> str:
    """Run rmqstore in a directory, and return its colored output as SVG."""
    command = [sys.executable, "-m", "rmqstore", *words, "--color", "always", "--utc"]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "RMQSTORE_SETTINGS": "", "RMQSTORE_LANG": "en"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ rmqstore {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi(done.stdout.rstrip()))
    return console.export_svg(title="", theme=MONOKAI, code_format=_TEMPLATE, unique_id="rmqstore")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        damaged_store(folder)
        (IMAGES / "verify.svg").write_text(terminal(folder, "verify", "store"))
        subprocess.run(
            [sys.executable, "-m", "rmqstore", "report", "store", "-o", "report.html"], cwd=folder, check=False
        )
        page = folder / "report.html"  # without the names of this machine
        text = page.read_text("utf-8").replace(str(folder.resolve()), "/data")
        page.write_text(text.replace(f"<dd>{socket.gethostname()}</dd>", "<dd>broker-a</dd>"), "utf-8")
        chromium = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
        if chromium is None:
            print("no chromium: the picture of the report is not made again")
            return
        size = ("--window-size=1000,860", "--force-device-scale-factor=1", "--hide-scrollbars")
        picture = folder / "report.png"
        words = (chromium, "--headless", "--no-sandbox", "--disable-gpu", *size, f"--screenshot={picture}")
        subprocess.run([*words, page.as_uri()], check=True, capture_output=True)
        shutil.copy(picture, IMAGES / "report.png")


if __name__ == "__main__":
    main()

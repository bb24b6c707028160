"""MkDocs hook: adds the pages above docs/, such as README.md, and the manual pages as a reference.

`rmqstore.manual` generates the manual pages, so the reference has no source files in docs/.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rmqstore.manual import pages

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "rmqstore" / "examples"
_ESCAPES = {"\\e": "\\", "\\-": "-", "\\(aq": "'", "\\(ga": "`", "\\&": ""}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README, CONTRIBUTING, CHANGELOG, the reference and the example files to the site."""
    outside = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
    made = {name: (ROOT / name).read_text("utf-8").replace("](docs/", "](") for name in outside}
    manual = pages()
    made["reference/index.md"] = "# Reference\n\n" + "".join(
        f"* [{name.rpartition('.')[0]}]({name}.md): {_about(text)}\n" for name, text in manual.items()
    )
    made |= {f"reference/{name}.md": _markdown(text) for name, text in manual.items()}
    made |= {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in EXAMPLES.rglob("*") if path.is_file()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Redirect links to pages above docs/ to their copies in the site."""
    return markdown.replace("](../", "](") if "/" not in page.file.src_uri else markdown


def _about(troff: str) -> str:
    return next(_plain(line).partition(" - ")[2] for line in troff.splitlines() if " \\- " in line)


def _plain(text: str) -> str:
    return re.sub(r"\\(?:\(..|.)", lambda m: _ESCAPES[m[0]], text)


def _markdown(troff: str) -> str:
    """Convert a manual page to Markdown; only the macros that `rmqstore.manual` writes are known."""
    out: list[str] = []
    verbatim = term = False
    for line in troff.splitlines():
        macro, _, rest = line.partition(" ") if line.startswith(".") else ("", "", line)
        text = _plain(rest)
        if verbatim and macro != ".fi":
            out.append(text)
        elif macro in (".nf", ".fi"):
            verbatim = macro == ".nf"
            out.append("\n```" if verbatim else "```\n")
        elif macro == ".TH":
            out.append(f"# {text.split()[0].strip(chr(34)).lower()}\n")
        elif macro in (".SH", ".SS"):
            out.append(f"\n{'##' if macro == '.SH' else '###'} {_shown(text.strip(chr(34)))}\n")
        elif macro == ".TP":
            term = True
        elif macro in (".B", ".BR", ".I"):
            out.append(f"\n**{_shown(text)}**  " if term else f"`{text}`")
            term = False
        elif macro in ("", ".PP"):
            out.append(_shown(text) if macro == "" else "")
    return "\n".join(out) + "\n"


def _shown(text: str) -> str:
    """Escape the special characters of Markdown, except in code between backticks."""
    return re.sub(r"`[^`]+`|[\\`*_{}\[\]<>#|]", lambda m: m[0] if len(m[0]) > 1 else f"\\{m[0]}", text)

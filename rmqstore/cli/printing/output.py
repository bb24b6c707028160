"""The only module that prints: data to stdout or -o FILE; messages and progress to stderr."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from rmqstore.cli import lang
from rmqstore.cli.printing.json_text import json_bytes as json_bytes
from rmqstore.cli.printing.json_text import quote_wide
from rmqstore.cli.printing.quantities import columns, wrapped
from rmqstore.errors import NotReadable, OutputExists, Refused, RmqStoreError, UsageError, reason
from rmqstore.files.disk import real_path, start_writing
from rmqstore.files.private import PrivateFile, make_private_directories
from rmqstore.formats.text import harmless, harmless_bytes
from rmqstore.texts import Text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_STEP = 8 << 20  # bytes


class EarlyFile(io.FileIO):
    """An open file, which it does not close, and whose pages the kernel begins to write every few megabytes."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._waiting = 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Write like FileIO, and start the write-back of earlier pages."""
        count = super().write(data)
        self._waiting += count
        if self._waiting >= _STEP:
            start_writing(self.fileno())
            self._waiting = 0
        return count


class Harmless:
    """A terminal for data of a store: control characters other than tab and newline become dots."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(harmless_bytes(bytes(data)))
        return len(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._file.flush()


class Styled:
    """One line. Styles are those of rich ("bold red"); "" is plain text. Each part is translated for itself."""

    def __init__(self, text: str = "", *, style: str = "") -> None:
        self.parts = [(text, style)]

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join(text for text, _ in self.parts)

    def append(self, text: str, *, style: str = "") -> Styled:
        """Append a part, and return the line."""
        self.parts.append((text, style))
        return self


Json = dict[str, Any]
_SUFFIXES = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".txt": "table",
    ".hex": "hex",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
_NARROW = 60  # columns of a terminal below which every line may be too long
_COMMAND = ": rmqstore "  # a line that ends with a command to paste
_SINGLE_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # others stand for bytes of a file name
_SILENCE = 2.0  # seconds
_BUFFER = 1 << 17  # bytes
_OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")


def guard_descriptors() -> None:
    """Open /dev/null as 0, 1 and 2 where the caller has closed them; a file of a store would get the number instead."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def flush_stdout() -> None:
    """Write what is buffered, so that a closed pipe raises BrokenPipeError here and not when the process ends."""
    if sys.stdout is not None:
        sys.stdout.flush()


def swallow_stdout() -> None:
    """Redirect stdout to /dev/null after it failed, so that the interpreter does not complain at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # not a real file (in tests)
        pass


def write_file(path: Path, data: bytes) -> None:
    """Write a small file of rmqstore's own (never in a store) atomically; do nothing if that fails."""
    with contextlib.suppress(OSError, RmqStoreError):
        make_private_directories(path.parent)
        with PrivateFile(path) as file:
            os.write(file.descriptor, data)
            file.finish()


def refuse_existing(path: Path) -> None:
    """Errors: Refused for the directory of an output that exists."""
    if os.path.lexists(path):
        raise Refused(Text("{path} exists", path=path), Text("name a directory that does not exist"))


def remove_file(path: Path) -> None:
    """Remove a file that `write_file` wrote, if it exists."""
    with contextlib.suppress(OSError):
        path.unlink()


class _Screen:
    """The terminal: progress bars that are shown, and messages that wait until the pager ends."""

    def __init__(self) -> None:
        self.bars: list[Progress] = []
        self.waiting: list[str] | None = None

    def give_to_pager(self) -> None:
        """Remove the bars, and hold messages back."""
        self.waiting = []
        for bar in self.bars:
            bar.hide()

    def take_back(self) -> None:
        """The pager has ended: write the messages."""
        lines, self.waiting = self.waiting or [], None
        for line in lines:
            warn(lang.AsIs(line))


_SCREEN = _Screen()


def warn(message: str) -> None:
    """Write a line to stderr; control characters, as in names, become dots."""
    if sys.stderr is None:
        return
    message = lang.translated(message)
    if _SCREEN.waiting is not None:
        _SCREEN.waiting.append(message)
        return
    with contextlib.suppress(OSError, ValueError):
        print(harmless(message), file=sys.stderr, flush=True)  # noqa: T201


def tell_error(code: str, message: str, advice: str, as_json: bool) -> None:
    """Write an error as one line to stderr; with --json also as an object to stdout."""
    error = Text("error: {message} — {advice}") if advice else Text("error: {message}")
    warn(error.format(message=message, advice=advice))
    if as_json:
        line = json_bytes({"error": {"code": code, "message": message, "advice": advice}})
        try:
            _stdout().write(line + b"\n")
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except (OSError, NotReadable):  # stdout may be what the error is about: full, or closed
            swallow_stdout()


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise NotReadable(Text("stdout is closed"), Text("open it, or use -o FILE"))
    sys.stdout.flush()
    return sys.stdout.buffer


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _is_no_file(path: Path) -> bool:
    """Return whether a path exists and is not a regular file: a device, a pipe, /dev/stdout."""
    if any(path.absolute().is_relative_to(name) for name in _OPEN_ALREADY):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _format_of(path: Path, formats: tuple[str, ...]) -> str:
    """Return the format by the suffix of a file; NDJSON without one where `table` is a format. Errors: UsageError."""
    if not path.suffix and "table" in formats:
        return "ndjson"
    found = _SUFFIXES.get(path.suffix.lower())
    if found not in formats:
        known = ", ".join(suffix for suffix, name in _SUFFIXES.items() if name in formats)
        suffix = Text("the suffix {suffix!r}", suffix=path.suffix) if path.suffix else Text("a name without a suffix")
        raise UsageError(
            Text("{path}: {suffix} does not say which format to write", path=path, suffix=suffix),
            Text("use {known}, or add --format", known=known),
        )
    return found


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors: NotReadable, which names the output, if its directory does not exist or refuses access."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, PermissionError) as e:
        why = Text("no such directory") if isinstance(e, FileNotFoundError) else reason(e)
        words = Text("{path} cannot be written: {why}", path=path, why=why)
        raise NotReadable(words, Text("write the output elsewhere")) from e


def _wrapped(lines: Iterable[str | Styled], width: int) -> Iterator[str | Styled]:
    """Break lines that are too long, except those that end with a command: a broken one cannot be pasted."""
    for line in lines:
        if isinstance(line, Styled) and width < _NARROW and columns(line.plain) > width and _COMMAND not in line.plain:
            line = line.plain
        if isinstance(line, Styled) or columns(line) <= width or _COMMAND in line:
            yield line
        else:
            then = " " * (len(line) - len(line.lstrip()) + 2)
            yield from wrapped(line, width, then=then)


def _shown(line: str | Styled, colors: bool = False) -> bytes:
    """Return a line as a terminal shows it."""
    out = ""
    for text, style in line.parts if isinstance(line, Styled) else [(line, "")]:
        text = _SINGLE_SURROGATE.sub(_escaped, harmless(lang.translated(text)))
        out += _in_style(text, style) if style and colors else text
    return out.encode("utf-8", "surrogateescape") + b"\n"


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _in_style(text: str, style: str) -> str:
    from rich.color import ColorSystem  # takes 5 ms, which output without colors does not need
    from rich.style import Style

    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


def refuse_inside(path: Path, store: Path) -> None:
    """Errors: UsageError for an output inside a store: a stray file there can keep a broker from starting."""
    target, root = real_path(path), real_path(store)
    if target == root or root in target.parents:
        raise UsageError(Text("the output {path} lies inside the store", path=path), Text("write it elsewhere"))


def _columns_told() -> int | None:
    """Return the columns that the environment asks for."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) >= 40 else None


@dataclass(slots=True)
class Output:
    """Where and how a command answers; `path` None or - is stdout."""

    path: Path | None = None
    as_json: bool = False
    format: str | None = None
    quiet: bool = False
    verbose: int = 0
    progress_mode: str = "auto"
    color: str = "auto"
    string_ints: bool = False
    overwrite: bool = True
    pager: bool = False
    mode: int | None = None
    """Mode of the file; None: private, or that of the user's own file which it replaces."""
    iso: bool = False
    """Whether rows of NDJSON and CSV have times in ISO 8601 instead of epoch ms."""

    def __post_init__(self) -> None:
        if str(self.path) == "-":
            self.path = None

    @classmethod
    def from_options(cls, values: dict[str, Any], formats: tuple[str, ...]) -> Output:
        """Take the options about output out of a command's values; without --format the file's suffix decides.

        Errors: UsageError for a suffix that is not one of a format.
        """
        out = cls(
            path=values.pop("output", None),
            as_json=values.pop("as_json", False),
            format=values.pop("format", None),
            quiet=values.pop("quiet"),
            verbose=values.pop("verbose"),
            progress_mode=values.pop("progress"),
            color=values.pop("color"),
            string_ints=values.pop("string_ints", False),
            overwrite=values.pop("overwrite", True),
            # a pager would halt a command that is changing a store
            pager=not values.pop("no_pager", True) and not values.get("apply_it"),
        )
        iso = values.pop("iso", False)
        if formats and out.format is None:
            if out.path is not None and not _is_no_file(out.path):
                out.format = _format_of(out.path, formats)
            else:
                as_table = out.path is None and _is_terminal(sys.stdout) and "table" in formats
                out.format = "table" if as_table else "ndjson"
        out.iso = iso and out.format in ("ndjson", "csv")
        return out

    def refuse_existing(self) -> None:
        """Errors: OutputExists for a file that exists, without --overwrite."""
        if self.is_file and not self.overwrite:
            raise OutputExists(
                Text("{path} already exists", path=self.path), Text("choose another name, or add --overwrite")
            )

    def keep_out_of(self, store: Path) -> Output:
        """Return this output. Errors: UsageError if it is inside the store."""
        if self.path is not None:
            refuse_inside(self.path, store)
        return self

    @property
    def is_file(self) -> bool:
        """Whether the output is a file that exists; not for stdout, a device or a pipe."""
        return self.path is not None and self.path.exists() and not _is_no_file(self.path)

    def check(self) -> None:
        """Test that the output can be written, before a command changes a store. Errors: NotReadable, OSError."""
        if self.path is None:
            _stdout()
        elif _is_no_file(self.path):
            self.path.open("ab").close()
        else:
            with _named(self.path):
                PrivateFile(self.path, mode=self.mode).close()

    def note_removed(self, path: Path) -> None:
        """Name what an interrupted run left, and this run has removed."""
        self.note(Text("note: removed {path}, which an interrupted run left", path=path))

    # --- stdout ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stream(self, *, data: bool = False) -> Iterator[BinaryIO]:
        """Yield stdout, or a temporary file that replaces the output at the end.

        `data`: bytes of a store, whose control characters a terminal shows as dots. A link stays a link; a device or a
        pipe is written to directly. Errors: NotReadable, OSError.
        """
        if self.path is None:
            stdout = _stdout()
            yield Harmless(stdout) if data and sys.stdout.isatty() else stdout  # type: ignore[misc]  # callers only write
            stdout.flush()
            return
        if _is_no_file(self.path):
            with self.path.open("wb") as file:
                yield file
            return
        with _named(self.path):
            private = PrivateFile(self.path, mode=self.mode, removed=self.note_removed)
        with private, io.BufferedWriter(EarlyFile(private.descriptor), _BUFFER) as file:
            yield file
            file.flush()
            private.finish()

    @contextlib.contextmanager
    def paged(self, *, data: bool = False) -> Iterator[BinaryIO]:
        """As `stream`; text longer than the screen of a terminal goes to a pager."""
        text = self.format in (None, "table", "hex") and not self.as_json and self.path is None
        if not text or not self.pager or not _is_terminal(sys.stdout) or not _is_terminal(sys.stdin):
            with self.stream(data=data) as file:
                yield file
            return
        from rmqstore.cli.printing.pager import Paged, pager_command

        words = pager_command()
        with self.stream(data=data) as file:
            if not words:
                yield file
                return
            pages = Paged(file, words, _SCREEN.give_to_pager)
            try:
                yield Harmless(pages) if data else pages  # type: ignore[misc, arg-type]
            except BrokenPipeError:
                if not pages.is_open:
                    raise
                # the user has quit the pager
            finally:
                pages.close()
                _SCREEN.take_back()

    def report(self, value: Json) -> None:
        """Write one JSON object."""
        if self.string_ints:
            value = quote_wide(value)
        with self._to_the_end(), self.stream() as file:
            file.write(json_bytes(value, indent=self.path is None and sys.stdout.isatty()) + b"\n")

    @contextlib.contextmanager
    def _to_the_end(self) -> Iterator[None]:
        """Ignore that the reader of stdout has closed it (`| head`): the command continues with its own exit code."""
        try:
            yield
        except BrokenPipeError:
            swallow_stdout()

    def lines(self, lines: Iterable[str | Styled], *, wrap: bool = False) -> None:
        """Write lines of text, with control characters as dots.

        `wrap`: break lines without styles at the width of the terminal; on a narrow one, all lines are broken.
        """
        width, colors = self.terminal_width, self.colors
        if not wrap and width is not None and width >= _NARROW:
            width = None  # the lines fit
        with self._to_the_end(), self.paged() as file:
            for line in lines if width is None else _wrapped(lines, width):
                file.write(_shown(line, colors))

    def answer(self, value: Json, lines: Iterable[str | Styled], *, wrap: bool = True) -> None:
        """Write a JSON object with --json, otherwise lines of text, as `lines`."""
        if self.as_json:
            self.report(value)
        else:
            self.lines(lines, wrap=wrap)

    def tell_now(self, line: str) -> bool:
        """Write a line at once: to stdout if text goes there, otherwise to stderr; return whether it went to stdout."""
        if not self.as_json and self.path is None:
            try:
                with self.stream() as file:
                    file.write(_shown(line))
            except (OSError, NotReadable):
                swallow_stdout()
            else:
                return True
        warn(line)
        return False

    @property
    def colors(self) -> bool:
        """Whether to use colours: by --color, NO_COLOR, CLICOLOR_FORCE, or if stdout is a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
            return True
        return self.path is None and sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def terminal_width(self) -> int | None:
        """Columns of stdout; None if it is not a terminal."""
        if self.path is not None or not _is_terminal(sys.stdout):
            return None
        import shutil

        return max(40, shutil.get_terminal_size().columns)

    @property
    def width(self) -> int:
        """Columns for text: those of the terminal, else COLUMNS, else 80."""
        return self.terminal_width or _columns_told() or 80

    @property
    def name_width(self) -> int:
        """Columns that a table with names may take: as `width`, but unlimited for a file or a pipe.

        A program may search there, and would miss a name that is cut.
        """
        return self.terminal_width or _columns_told() or sys.maxsize

    # --- stderr ------------------------------------------------------------------------------------------------------

    def note(self, message: str) -> None:
        """Write a line to stderr, unless --quiet."""
        if not self.quiet:
            warn(message)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Write a note to a terminal if work without a progress bar takes more than two seconds."""
        if self.quiet or self.progress_mode not in ("auto", "bar") or not _is_terminal(sys.stderr):
            yield
            return
        import signal

        before = signal.signal(signal.SIGALRM, lambda *_: warn(Text("note: {what} …", what=what)))
        signal.setitimer(signal.ITIMER_REAL, _SILENCE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None = None, unit: str = "B") -> Iterator[Progress]:
        """Yield a progress bar, or JSON lines, or nothing, on stderr."""
        mode = self.progress_mode
        if mode == "auto":
            mode = "bar" if not self.quiet and _is_terminal(sys.stderr) else "none"
        progress = Progress(what, total, unit, mode)
        try:
            yield progress
        finally:
            progress.close()


class Progress:
    """Progress of one operation. Call it with the amount done, and the total once it is known."""

    def __init__(self, what: str, total: int | None, unit: str, mode: str) -> None:
        self.what = what
        self.total = total
        self.mode = mode
        self._last = 0.0
        self._done = 0
        self._bar: Any = None
        if mode == "bar":
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # workers cannot be forked beside its thread
            self._bar = tqdm(
                total=total,
                desc=lang.translated(what),
                unit=unit,
                unit_scale=unit == "B",
                unit_divisor=1024,
                leave=False,
                delay=0.5,
            )
            _SCREEN.bars.append(self)

    def __call__(self, done: int, total: int | None = None) -> None:
        if self.mode == "none":
            return
        if total is not None:
            self.total = total
        if self._bar is not None:
            self._bar.total = self.total
            self._bar.update(done - self._done)
        elif time.monotonic() - self._last >= 1 or done == self.total:
            self._last = time.monotonic()
            warn(lang.AsIs(json_bytes({"progress": self.what, "done": done, "total": self.total}).decode()))
        self._done = done

    def add(self, count: int) -> None:
        """Add to the amount done."""
        self(self._done + count)

    def close(self) -> None:
        """End the operation."""
        self.hide()
        if self._bar is not None:
            _SCREEN.bars.remove(self)

    def hide(self) -> None:
        """Remove the bar from the screen, which something else needs."""
        if self._bar is not None:
            self._bar.close()

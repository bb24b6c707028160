"""The only module that prints: data on stdout or into -o FILE, talk and progress on stderr."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from rmqstore.cli.json_text import json_bytes as json_bytes
from rmqstore.cli.json_text import quote_wide
from rmqstore.cli.quantities import wrapped
from rmqstore.errors import NotReadable, OutputExists, Refused, UsageError
from rmqstore.files.disk.paths import real_path
from rmqstore.formats.text.controls import CONTROLS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Json = dict[str, Any]
_CONTROLS = dict.fromkeys((code for code in CONTROLS if code not in b"\t\n"), "·")
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
_COMMAND = ": rmqstore "  # a line that ends with a command to paste
_SILENCE = 2.0  # seconds
_OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")


def guard_descriptors() -> None:
    """Keep 0, 1 and 2 taken when the caller has closed them: a file of a store would get one of these numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def flush_stdout() -> None:
    """What is buffered goes out now, so that a closed pipe is met while somebody can still handle it."""
    if sys.stdout is not None:
        sys.stdout.flush()


def swallow_stdout() -> None:
    """Nothing more can be written to stdout: keeps the interpreter from complaining at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # not a real file (in tests)
        pass


def write_file(path: Path, data: bytes) -> None:
    """A small file of the tool's own (never in a store), all or nothing.

    A place that cannot be written is passed over.
    """
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        beside.write_bytes(data)
        beside.replace(path)


def new_directory(path: Path) -> None:
    """A directory for output that must not be there yet, with those that it lies in.

    Errors: Refused where it exists.
    """
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise Refused(f"{path} exists", "name a directory that does not") from None


def remove_file(path: Path) -> None:
    """Remove a file that `write_file` made, if it is there."""
    with contextlib.suppress(OSError):
        path.unlink()


class _Screen:
    """Who has the terminal: the bars that are on it, and lines that wait until a pager is gone."""

    def __init__(self) -> None:
        self.bars: list[Progress] = []
        self.waiting: list[str] | None = None

    def give_to_pager(self) -> None:
        """Take the bars away, and keep lines for later."""
        self.waiting = []
        for bar in self.bars:
            bar.end()

    def take_back(self) -> None:
        """The pager is gone: write the lines."""
        lines, self.waiting = self.waiting or [], None
        for line in lines:
            warn(line)


_SCREEN = _Screen()


def warn(message: str) -> None:
    """A line on stderr; names in it cannot steer the terminal."""
    if sys.stderr is None:
        return
    if _SCREEN.waiting is not None:
        _SCREEN.waiting.append(message)
        return
    with contextlib.suppress(OSError, ValueError):
        print(message.translate(_CONTROLS), file=sys.stderr, flush=True)  # noqa: T201  # the one place that talks


def tell_error(code: str, message: str, advice: str, as_json: bool) -> None:
    """One line on stderr; with --json also the error object on stdout."""
    warn(f"error: {message} — {advice}" if advice else f"error: {message}")
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
        raise NotReadable("stdout is closed", "give it somewhere to go, or use -o FILE")
    sys.stdout.flush()
    return sys.stdout.buffer


def _harmless(file: Any) -> Any:
    from rmqstore.cli.text_layer import Harmless

    return Harmless(file)


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether it is one; a stream that the caller has closed is None."""
    return stream is not None and stream.isatty()


def _is_no_file(path: Path) -> bool:
    """Whether a path exists and is not a file on a disk: a device, a pipe, /dev/stdout."""
    if any(path.absolute().is_relative_to(name) for name in _OPEN_ALREADY):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _format_of(path: Path, formats: tuple[str, ...]) -> str:
    """The format that a file's name asks for; a dump under a name without a suffix is NDJSON. Errors: UsageError."""
    if not path.suffix and "table" in formats:
        return "ndjson"
    found = _SUFFIXES.get(path.suffix.lower())
    if found not in formats:
        known = ", ".join(suffix for suffix, name in _SUFFIXES.items() if name in formats)
        suffix = f"the suffix {path.suffix!r}" if path.suffix else "a name without a suffix"
        raise UsageError(f"{path}: {suffix} does not say which format to write", f"use {known}, or add --format")
    return found


def _opened(building: Path, path: Path) -> BinaryIO:
    """The file beside an output, for writing, with the mode of the one that it replaces; an error names the output."""
    try:
        file = building.open("wb")
        with contextlib.suppress(OSError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        return file
    except (FileNotFoundError, NotADirectoryError, PermissionError) as e:
        why = "no such directory" if isinstance(e, FileNotFoundError) else e.strerror or str(e)
        raise NotReadable(f"{path} cannot be written: {why}", "write the output elsewhere") from e


def _wrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    """Break lines that are too long, except those that end with a command: a broken one cannot be pasted."""
    for line in lines:
        if len(line) <= width or _COMMAND in line:
            yield line
        else:
            then = " " * (len(line) - len(line.lstrip()) + 2)
            yield from wrapped(line, width, then=then)


class Output:
    """Where and how a command answers."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        format: str | None = None,  # noqa: A002  # as the option is called
        path: Path | None = None,
        quiet: bool = False,
        verbose: int = 0,
        progress: str = "auto",
        color: str = "auto",
        string_ints: bool = False,
        overwrite: bool = True,
        pager: bool = False,
    ) -> None:
        self.as_json = as_json
        self.format = format
        self.path = None if path is None or str(path) == "-" else path
        self.quiet = quiet
        self.verbose = verbose
        self.progress_mode = progress
        self.color = color
        self.string_ints = string_ints
        self.overwrite = overwrite
        self.pager = pager

    @classmethod
    def from_options(cls, values: dict[str, Any], *, as_json: bool, formats: tuple[str, ...]) -> Output:
        """Takes the options about output out of a command's values; the format follows from the name of the output.

        Errors: UsageError for a name that does not say which of the formats it has.
        """
        out = cls(
            as_json=as_json,
            format=values.pop("format", None) if formats else None,
            path=values.pop("output", None),
            quiet=values.pop("quiet", False),
            verbose=values.pop("verbose", 0),
            progress=values.pop("progress", "auto"),
            color=values.pop("color", "auto"),
            string_ints=values.pop("string_ints", False),
            overwrite=values.pop("overwrite", True),
            # while a store is changed, nobody must have to quit a pager first
            pager=not values.pop("no_pager", True) and not values.get("apply_it"),
        )
        if formats and out.format is None:
            if out.path is not None and not _is_no_file(out.path):
                out.format = _format_of(out.path, formats)
            else:
                as_table = out.path is None and _is_terminal(sys.stdout) and "table" in formats
                out.format = "table" if as_table else "ndjson"
        return out

    def refuse_existing(self) -> None:
        """Errors: OutputExists for a file that is there already, and is not to be replaced."""
        if self.is_file and not self.overwrite:
            raise OutputExists(f"{self.path} already exists", "choose another name, or add --overwrite")

    def keep_out_of(self, store: Path) -> None:
        """Refuses an output inside the store: a stray file there can keep a broker from starting.

        Errors: UsageError
        """
        if self.path is None:
            return
        target, root = real_path(self.path), real_path(store)
        if target == root or root in target.parents:
            raise UsageError(f"the output {self.path} lies inside the store", "write it elsewhere")

    @property
    def is_file(self) -> bool:
        """Whether the output is a file that exists already; not for stdout, a device or a pipe."""
        return self.path is not None and self.path.exists() and not _is_no_file(self.path)

    def check(self) -> None:
        """Find out now whether the output can be written, for a command that changes a store before it answers.

        Errors: NotReadable, OSError.
        """
        if self.path is None:
            _stdout()
        elif _is_no_file(self.path):
            self.path.open("ab").close()
        else:
            target = real_path(self.path)
            building = target.with_name(f".{target.name}.{os.getpid()}.part")
            try:
                _opened(building, self.path).close()
            finally:
                with contextlib.suppress(OSError):
                    building.unlink(missing_ok=True)

    # --- stdout ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stream(self, *, data: bool = False, private: bool = False) -> Iterator[BinaryIO]:
        """stdout, or a file that appears when everything is written.

        `data`: bytes of a store; on a terminal their control characters are shown as dots.
        `private`: nobody but the user may read or change the file.
        A link is kept. A device or a pipe is written to directly, and never replaced by a file.
        """
        if self.path is None:
            stdout = _stdout()
            yield _harmless(stdout) if data and sys.stdout.isatty() else stdout
            stdout.flush()
            return
        if _is_no_file(self.path):
            with self.path.open("wb") as file:
                yield file
            return
        target = real_path(self.path)
        building = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with _opened(building, self.path) as file:
                if private:
                    os.fchmod(file.fileno(), 0o600)
                yield file
                file.flush()
                os.fsync(file.fileno())
            building.replace(target)
        finally:
            with contextlib.suppress(OSError):  # as without its directory: the first error is the one to report
                building.unlink(missing_ok=True)

    @contextlib.contextmanager
    def paged(self, *, data: bool = False) -> Iterator[BinaryIO]:
        """As `stream`; text that is longer than the screen of a terminal goes through a pager."""
        text = self.format in (None, "table", "hex") and not self.as_json and self.path is None
        if not text or not self.pager or not _is_terminal(sys.stdout) or not _is_terminal(sys.stdin):
            with self.stream(data=data) as file:
                yield file
            return
        from rmqstore.cli.pager import Paged, pager_command

        words = pager_command()
        with self.stream(data=data) as file:
            if not words:
                yield file
                return
            pages = Paged(file, words, _SCREEN.give_to_pager)
            try:
                yield _harmless(pages) if data else pages  # type: ignore[misc]  # what writes needs no more of a file
            except BrokenPipeError:
                if not pages.is_open:
                    raise
                # somebody has seen enough and quit the pager
            finally:
                pages.close()
                _SCREEN.take_back()

    def report(self, value: Json) -> None:
        """One JSON object."""
        if self.string_ints:
            value = quote_wide(value)
        with self._to_the_end(), self.stream() as file:
            file.write(json_bytes(value, indent=self.path is None and sys.stdout.isatty()) + b"\n")

    @contextlib.contextmanager
    def _to_the_end(self) -> Iterator[None]:
        """A reader who has seen enough (`| head`) changes neither what a command does nor its exit code."""
        try:
            yield
        except BrokenPipeError:
            swallow_stdout()

    def lines(self, lines: Iterable[str], *, wrap: bool = False) -> None:
        """Plain text, a line each; names in it cannot steer the terminal. `wrap`: to the width of the terminal."""
        width = self.terminal_width if wrap else None
        with self._to_the_end(), self.paged() as file:
            for line in lines if width is None else _wrapped(lines, width):
                file.write(line.translate(_CONTROLS).encode("utf-8", "surrogateescape") + b"\n")

    def tell_now(self, line: str) -> bool:
        """A line that must be seen at once: on stdout when it has text, else, or when that fails, on stderr.

        Whether it went to stdout.
        """
        if not self.as_json and self.path is None:
            try:
                with self.stream() as file:
                    file.write(line.translate(_CONTROLS).encode("utf-8", "surrogateescape") + b"\n")
            except (OSError, NotReadable):
                swallow_stdout()
            else:
                return True
        warn(line)
        return False

    def render(self, *parts: RenderableType) -> None:
        """Text for people, by rich; names in it cannot steer the terminal."""
        from rich.text import Text

        with self._to_the_end(), self.paged() as file:
            console = self.console(file)
            for part in parts:
                if isinstance(part, Text):
                    part.plain = part.plain.translate(_CONTROLS)
                # a command that is broken into lines cannot be copied
                console.print(part, soft_wrap=True if isinstance(part, Text) and part.no_wrap else None)

    def console(self, file: BinaryIO) -> Console:
        """A rich console on a binary file, with colours as asked for."""
        import io

        from rich.console import Console

        from rmqstore.cli.text_layer import TextLayer, Unclosed

        class Quiet(Console):
            def on_broken_pipe(self) -> None:
                """Rich would end the process with exit code 1, which here means that problems were found."""
                raise BrokenPipeError

        colors = self.colors
        text = TextLayer(io.TextIOWrapper(Unclosed(file), encoding="utf-8", errors="replace", write_through=True))
        return Quiet(
            file=text,  # type: ignore[arg-type]
            width=self.width,
            force_terminal=colors,
            no_color=not colors,
            color_system="standard" if colors else None,
            highlight=False,
            soft_wrap=False,
            legacy_windows=False,
            markup=False,
        )

    @property
    def colors(self) -> bool:
        """Whether to colour: --color, then NO_COLOR, CLICOLOR_FORCE, then whether stdout is a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
            return True
        return self.path is None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def terminal_width(self) -> int | None:
        """Columns of the terminal that stdout is; None where it is none."""
        if self.path is not None or not _is_terminal(sys.stdout):
            return None
        import shutil

        return max(40, shutil.get_terminal_size().columns)

    @property
    def width(self) -> int:
        """Columns for text: the terminal's, else 80."""
        if (found := self.terminal_width) is not None:
            return found
        columns = os.environ.get("COLUMNS", "")
        return int(columns) if columns.isdigit() and int(columns) >= 40 else 80

    # --- stderr ------------------------------------------------------------------------------------------------------

    def note(self, message: str) -> None:
        """Something worth knowing, on stderr; not with --quiet."""
        if not self.quiet:
            warn(message)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """For work without a bar: on a terminal, a note on stderr after two seconds of silence."""
        if self.quiet or self.progress_mode not in ("auto", "bar") or not _is_terminal(sys.stderr):
            yield
            return
        import signal

        before = signal.signal(signal.SIGALRM, lambda *_: warn(f"note: {what} …"))
        signal.setitimer(signal.ITIMER_REAL, _SILENCE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None = None, unit: str = "B") -> Iterator[Progress]:
        """A progress bar, JSON lines, or nothing, on stderr."""
        mode = self.progress_mode
        if mode == "auto":
            mode = "bar" if not self.quiet and _is_terminal(sys.stderr) else "none"
        progress = Progress(what, total, unit, mode)
        try:
            yield progress
        finally:
            progress.close()


class Progress:
    """Called with how much is done (`done`, and `total` when it is known by now)."""

    def __init__(self, what: str, total: int | None, unit: str, mode: str) -> None:
        self.what = what
        self.total = total
        self.mode = mode
        self._last = 0.0
        self._done = 0
        self._bar: Any = None
        if mode == "bar":
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # its thread would keep workers from being forked
            self._bar = tqdm(
                total=total, desc=what, unit=unit, unit_scale=unit == "B", unit_divisor=1024, leave=False, delay=0.5
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
            warn(json_bytes({"progress": self.what, "done": done, "total": self.total}).decode())
        self._done = done

    def add(self, count: int) -> None:
        """So much more is done."""
        self(self._done + count)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            _SCREEN.bars.remove(self)

    def end(self) -> None:
        """Takes the bar away before the work is done: the screen is needed."""
        if self._bar is not None:
            self._bar.close()

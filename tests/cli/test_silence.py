"""After a while, a command without a progress bar prints what it is doing."""

from __future__ import annotations

import signal
import time

import pytest

from rmqstore.cli.printing import output
from rmqstore.cli.printing.output import Output


@pytest.mark.parametrize(
    ("quiet", "mode", "told"), [(False, "auto", True), (True, "auto", False), (False, "none", False)]
)
def test_two_seconds_of_silence_are_explained(
    quiet: bool, mode: str, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_SILENCE", 0.02)
    monkeypatch.setattr(output, "_is_terminal", lambda stream: True)
    before = signal.getsignal(signal.SIGALRM)
    with Output(quiet=quiet, progress_mode=mode).busy("reading the log"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ("note: reading the log …\n" if told else "")
    assert signal.getsignal(signal.SIGALRM) is before


def test_nothing_is_said_of_work_that_is_soon_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_is_terminal", lambda stream: True)
    with Output().busy("reading the log"):
        pass
    assert capsys.readouterr().err == ""
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_bar_that_was_hidden_can_still_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Output(progress_mode="bar").progress("verify", 10) as progress:
        progress(5)
        progress.hide()  # like before a pager starts, or before Spark stops
    assert output._SCREEN.bars == []
    assert capsys.readouterr().out == ""

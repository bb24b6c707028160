"""A fixture that runs every test of a package twice: with the C loops, and with NumPy instead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqstore.scan import native


def _switch(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "C":
        if native.load() is None:
            pytest.skip("rmqstore was installed without a C compiler")
        yield "C"
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda: None)
        yield "NumPy"


loops = pytest.fixture(_switch, scope="module", params=["C", "NumPy"], autouse=True)
mostly_c = pytest.fixture(
    _switch, scope="module", params=["C", pytest.param("NumPy", marks=pytest.mark.slow)], autouse=True, name="loops"
)
"""For what lies above the loops: `make test` runs each test with those in C only."""

"""A fixture that has every test of a room run twice: with the loops in C, and with NumPy's in their place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqstore.scan import native


@pytest.fixture(scope="module", params=["C", "NumPy"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "C":
        if native.load() is None:
            pytest.skip("rmqstore was installed without a C compiler")
        yield "C"
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda: None)
        yield "NumPy"

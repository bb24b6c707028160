"""The mark of text that is not translated."""

from __future__ import annotations


class AsIs(str):
    """Text of a store, as a body or a property, which is shown as it is."""

    __slots__ = ()

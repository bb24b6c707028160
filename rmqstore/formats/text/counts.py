"""Counts in words."""

from __future__ import annotations

from rmqstore.texts import many as many

"""Resolve untrusted paths, whose links may be circular."""

from __future__ import annotations

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """Return the absolute path with links resolved; a link that cannot be resolved, such as a circular one, stays.

    Path.resolve() raises RuntimeError for a circular link (Python 3.11, 3.12).
    """
    return Path(os.path.realpath(path))

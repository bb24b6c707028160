"""--acl: the keys of a user of a broker with access control."""

from __future__ import annotations

from pathlib import Path

from rmqstore.errors import UsageError
from rmqstore.texts import Text


def access_keys(path: Path, *, required: bool = True) -> tuple[str, str]:
    """Return the accessKey and the secretKey in a file like conf/tools.yml.

    Errors: NotReadable; UsageError if one is missing, unless they are not required.
    """
    from rmqstore.append.sending.client import credentials

    given = dict(credentials(path))
    access, secret = given.get("accessKey", ""), given.get("secretKey", "")
    if required and not (access and secret):
        raise UsageError(
            Text("{acl} has no accessKey and secretKey", acl=path), Text("write them as in conf/tools.yml")
        )
    return access, secret

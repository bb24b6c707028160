"""`rmqstore dump --what mqadmin`: users and permissions as mqadmin commands."""

from __future__ import annotations

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.files.store import Store
from rmqstore.texts import Text
from rmqstore.views.dump.access import access_of, commands


def show(out: Output, store: Store) -> int:
    """Print the commands; return the exit code: 4 if a database cannot be read, 1 if rows of one cannot."""
    bad, unread, found = 0, False, 0
    for one in access_of(store):
        found += 1
        bad += len(one.faults)
        if one.error:
            unread = True
            out.note(Text("warning: config/{name}/ cannot be read: {why}", name=one.name, why=one.error))
        out.lines([AsIs(line) for line in commands(one)])
    if not found:
        out.note(Text("note: the store has no users and no permissions (config/users/, config/acls/)"))
    if bad:
        out.note(Text("warning: {rows} could not be parsed", rows=many(bad, "row")))
    return 4 if unread else 1 if bad else 0

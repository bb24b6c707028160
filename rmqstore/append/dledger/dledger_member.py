"""The role, term and leader of a DLedger member.

Source: MemberState (DLedger 0.3.2)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rmqstore.errors import Refused
from rmqstore.texts import Text


class Role(StrEnum):
    """The role of a member in its group."""

    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(slots=True)
class MemberState:
    """The state of this member in its group; `currterm` stores `term` and `vote_leader`."""

    self_id: str = "n0"
    role: Role = Role.LEADER
    term: int = 0
    leader_id: str | None = "n0"
    vote_leader: str | None = "n0"

    def refuse_strange_leader(self, term: int, leader_id: str) -> None:
        """Refuse entries unless this member is a follower and they come from the leader of its term.

        Errors: Refused.
        """
        if self.role is not Role.FOLLOWER:
            raise Refused(
                Text("{self_id} is not a follower", self_id=self.self_id),
                Text("append as leader, or make it a follower"),
            )
        if term != self.term:
            raise Refused(
                Text("the leader's term is {term}, this member's term {term2}", term=term, term2=self.term),
                Text("wait for the election"),
            )
        if leader_id != self.leader_id:
            raise Refused(
                Text("{leader_id} is not the leader; {leader_id2} is", leader_id=leader_id, leader_id2=self.leader_id),
                Text("wait for the election"),
            )

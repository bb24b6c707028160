"""Who a DLedger member is in its group, and whom it follows.

Source: MemberState (DLedger 0.3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rmqstore.errors import Refused


class Role(StrEnum):
    """What a member of the group is."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"


@dataclass(slots=True)
class MemberState:
    """Who this node is in its group; `term` and `vote_leader` are what `currterm` keeps.

    Source: MemberState, DLedger 0.3.2
    """

    self_id: str = "n0"
    role: Role = Role.LEADER
    term: int = 0
    leader_id: str | None = "n0"
    vote_leader: str | None = "n0"

    def refuse_strange_leader(self, term: int, leader_id: str) -> None:
        """A follower takes entries from the leader of its term only.

        Errors: Refused.
        """
        if self.role is not Role.FOLLOWER:
            raise Refused(f"{self.self_id} is not a follower", "append as leader, or make it a follower")
        if term != self.term:
            raise Refused(f"the leader's term is {term}, this member's {self.term}", "wait for the election")
        if leader_id != self.leader_id:
            raise Refused(f"{leader_id} is not the leader {self.leader_id}", "wait for the election")

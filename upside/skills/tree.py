"""The growing tree (Sect. 3.3): edges are directed skills, nodes are diffusing parts.

Bookkeeping only. A node's number is its row in the bank of skills and its class of the
discriminator; node 0 is the root, a diffusing part around s_0 without a skill.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass
class Node:
    """One consolidated policy."""

    parent: int | None
    depth: int
    """Directed skills executed to get here: its episodes take depth · T + H steps."""
    discriminability: float
    """d(z) when it was consolidated."""
    born: int
    """Interactions spent by the run when it was consolidated."""
    expansions: int = 0
    """How often children were grown from it."""
    rho: float = 1.0
    """ρ(z), how often it was sampled when it was consolidated, as a multiple of 1/N (VIC learns it)."""
    tried: list[int] = dataclasses.field(default_factory=list)
    """Probes that were claimed by a child which did not make it, as often as that happened."""

    def forget(self, probes: Iterable[int]) -> None:
        """Other probes have taken the place of these."""
        gone = set(probes)
        self.tried = [probe for probe in self.tried if probe not in gone]


class Tree:
    """Consolidated policies; grows only."""

    def __init__(self, nodes: list[Node] | None = None):
        self.nodes = nodes or [Node(None, 0, 1.0, 0)]

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def add(self, parent: int, discriminability: float, born: int, rho: float = 1.0) -> int:
        """Consolidate a policy below `parent`; returns its number."""
        depth = self.nodes[parent].depth + 1
        self.nodes.append(Node(parent, depth, discriminability, born, rho=rho))
        return len(self.nodes) - 1

    def path(self, node: int) -> list[int]:
        """The skills executed to reach `node`, first to last; empty for the root."""
        path: list[int] = []
        while node != 0:
            path.append(node)
            parent = self.nodes[node].parent
            assert parent is not None
            node = parent
        return path[::-1]

    def children(self, node: int) -> list[int]:
        return [i for i, n in enumerate(self.nodes) if n.parent == node]

    def to_json(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(n) for n in self.nodes]

    @classmethod
    def from_json(cls, nodes: list[dict[str, Any]]) -> Tree:
        return cls([Node(**n) for n in nodes])

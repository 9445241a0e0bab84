"""Double binary trees: two trees over the same nodes, for half of the data each.

A node is inside one tree and a leaf of the other (almost always), so that it sends about as much as
it receives (Sanders, Speck and Träff, 2009; NCCL since version 2.4).
"""

from functools import cache
from itertools import product
from typing import NamedTuple

# The parent of a tree's root.
NOBODY = -1


class Move(NamedTuple):
    """A slice that a node passes on: up to its parent, to be summed up, or down to a child."""

    down: bool
    slice: int
    source: int
    destination: int


def parents(nodes: int) -> tuple[list[int], list[int]]:
    """Return the parent of each node in both trees (NCCL's `ncclGetDtree`).

    The second tree is the mirror image of the first, or is shifted by one for an odd number.
    """
    first = [_parent(node, nodes) for node in range(nodes)]
    turn = -1 if nodes % 2 == 0 else 1
    above = [first[(turn * node - 1) % nodes] for node in range(nodes)]
    second = [NOBODY if place == NOBODY else turn * (place + 1) % nodes for place in above]
    return first, second


def _parent(node: int, nodes: int) -> int:
    """Return the parent in a tree whose leaves are the odd nodes, and whose root is node 0."""
    if node == 0:
        return NOBODY
    lowest = node & -node
    above = (node ^ lowest) | (lowest << 1)
    return above if above < nodes else node ^ lowest


@cache
def rounds(nodes: int, slices: int) -> tuple[tuple[Move, ...], ...]:
    """Return the moves of an AllReduce in rounds; slices take the two trees in turn.

    In a round, each node sends at most once, and receives at most once. A node passes a slice up
    when it has those of its children, and down when it has the sum. Of the moves that are possible,
    those up come first, and then those of earlier slices.
    """
    above, below = parents(nodes), _children(nodes)
    missing = [[len(children) for children in below[number % 2]] for number in range(slices)]

    def onward(number: int, node: int, has_all: bool) -> list[Move]:
        """Return the moves of a node that has the sum of its subtree, or of all nodes."""
        parent = above[number % 2][node]
        if has_all or parent == NOBODY:
            return [Move(True, number, node, child) for child in below[number % 2][node]]
        return [Move(False, number, node, parent)]

    possible = [
        move
        for number, node in product(range(slices), range(nodes))
        if not missing[number][node]
        for move in onward(number, node, False)
    ]
    done = []
    while possible:
        taken, possible = _matching(sorted(possible))
        for move in taken:
            if not move.down:
                missing[move.slice][move.destination] -= 1
            if move.down or not missing[move.slice][move.destination]:
                possible += onward(move.slice, move.destination, move.down)
        done.append(tuple(taken))
    return tuple(done)


def _children(nodes: int) -> list[list[list[int]]]:
    """Return the children of each node in both trees."""
    children: list[list[list[int]]] = [[[] for _ in range(nodes)] for _ in range(2)]
    for tree, of_tree in zip(parents(nodes), children, strict=True):
        for node, parent in enumerate(tree):
            if parent != NOBODY:
                of_tree[parent].append(node)
    return children


def _matching(moves: list[Move]) -> tuple[list[Move], list[Move]]:
    """Divide moves into one round, and the moves left for later rounds."""
    taken, left = [], []
    sends, receives = set[int](), set[int]()
    for move in moves:
        if move.source in sends or move.destination in receives:
            left.append(move)
        else:
            sends.add(move.source)
            receives.add(move.destination)
            taken.append(move)
    return taken, left

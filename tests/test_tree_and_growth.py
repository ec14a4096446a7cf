"""What holds of every tree, and what Alg. 2 does next for every state of an expansion."""

import dataclasses
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upside.skills.growth import Child, Expansion, Fixed, Growth
from upside.skills.tree import Node, Tree

# ---------------------------------------------------------------- the tree


growths = st.lists(
    st.tuples(st.integers(0, 99), st.floats(0.8, 1.0), st.integers(0, 10**6)), max_size=12
)


def grown(growth):
    """A tree grown as a run grows it: each policy below one that exists."""
    tree = Tree()
    for parent, discriminability, born in growth:
        tree.add(parent % len(tree), discriminability, born)
    return tree


def test_a_tree_begins_with_a_root_that_is_reached_without_a_skill():
    tree = Tree()
    assert len(tree) == 1
    assert tree[0] == Node(parent=None, depth=0, discriminability=1.0, born=0)
    assert tree.path(0) == []


def test_the_papers_example():
    """App. B, the tree example: executing policy 7 composes the skills of 2, 5 and 7."""
    tree = Tree()
    numbers = [tree.add(parent, 0.9, 100) for parent in (0, 0, 0, 2, 2, 4, 5)]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]
    assert tree.path(7) == [2, 5, 7]
    assert tree.path(6) == [2, 4, 6]
    assert tree[7].depth == 3
    assert (tree.children(0), tree.children(2), tree.children(7)) == ([1, 2, 3], [4, 5], [])
    assert (tree[7].discriminability, tree[7].born) == (0.9, 100)


@given(growths)
def test_paths_lead_from_the_root_edge_by_edge(growth):
    tree = grown(growth)
    for z in range(1, len(tree)):
        path = tree.path(z)
        assert tree[path[0]].parent == 0
        assert path[-1] == z
        assert len(path) == tree[z].depth
        assert all(tree[b].parent == a for a, b in itertools.pairwise(path))


@given(growths)
def test_parents_precede_children_and_every_policy_is_the_child_of_one(growth):
    tree = grown(growth)
    assert all(tree[z].parent < z for z in range(1, len(tree)))
    below = [child for z in range(len(tree)) for child in tree.children(z)]
    assert sorted(below) == list(range(1, len(tree)))


@given(growths)
def test_a_tree_survives_json(growth):
    tree = grown(growth)
    for z, node in enumerate(tree.nodes):
        node.expansions, node.tried = z % 3, list(range(z))
    again = Tree.from_json(json.loads(json.dumps(tree.to_json())))
    assert again.nodes == tree.nodes


def test_what_was_tried_at_one_node_was_not_tried_at_another():
    tree = Tree()
    tree.add(0, 0.9, 1)
    tree[0].tried.append(3)
    assert tree[1].tried == []


# ---------------------------------------------------------------- one expansion: what next

PAPER = Growth(eta=0.8, margin=0.0, n_start=2, n_max=3, k_steps=100, freeze=False, patience=0)


def expansion(*d, waiting=(), **rest):
    """Children with the discriminabilities `d`; None is a child on its claimed probe still, at 0.9."""
    children = [
        Child(slot, d=0.9, arrived=False) if each is None else Child(slot, d=each)
        for slot, each in enumerate(d)
    ]
    return Expansion(0, children, list(waiting), **rest)


CASES = {
    # POLICYLEARNING goes on while it may (its K iterations are the budget K_steps)
    "not yet": (PAPER, expansion(0.9, 0.5), "continue"),
    "not yet, while adding": (PAPER, expansion(0.9, 0.5, direction="add"), "continue"),
    "not yet, while removing": (PAPER, expansion(0.5, direction="remove"), "continue"),
    "one step of the budget left": (PAPER, expansion(0.5, own_steps=99), "continue"),
    # lines 7-10: all satisfied, so one more, up to N_max
    "all satisfied": (PAPER, expansion(0.9, 0.9), "add"),
    "all satisfied after an addition": (PAPER, expansion(0.9, 0.9, direction="add"), "add"),
    "satisfied with the budget spent": (PAPER, expansion(0.9, 0.9, own_steps=100), "add"),
    "all N_max satisfied": (PAPER, expansion(0.9, 0.9, 0.9), "accept"),
    "all N_max after additions": (PAPER, expansion(0.9, 0.9, 0.9, direction="add"), "accept"),
    # η itself does not satisfy: the constraint is d > η
    "exactly η": (PAPER, expansion(0.9, 0.8), "continue"),
    # lines 11-15: not satisfied, so remove the least discriminable, down to none
    "budget spent": (PAPER, expansion(0.9, 0.5, own_steps=100), "remove"),
    "budget spent, one child": (PAPER, expansion(0.5, own_steps=100), "remove"),
    "removing goes on": (PAPER, expansion(0.5, 0.5, own_steps=150, direction="remove"), "remove"),
    # removal and addition are two branches: after a removal nothing is added
    "satisfied after a removal": (PAPER, expansion(0.9, direction="remove"), "accept"),
    # an addition that fails: back to the last set that met the constraint
    "failed addition": (PAPER, expansion(0.9, 0.9, 0.5, own_steps=100, direction="add"), "restore"),
    # with probes, a policy is added only where there is room
    "free probe": (PAPER, expansion(0.9, 0.9, waiting=[4]), "add"),
    "no free probe": (PAPER, expansion(0.9, 0.9), "accept"),
    "free probe, but N_max": (PAPER, expansion(0.9, 0.9, 0.9, waiting=[4]), "accept"),
    "free probe after a removal": (
        PAPER,
        expansion(0.9, waiting=[4], direction="remove"),
        "accept",
    ),
    # with freezing, what counts is a whole buffer, which is filled when a child is frozen
    "one good episode": (dataclasses.replace(PAPER, freeze=True), expansion(0.9, 0.9), "continue"),
    # a class fitted on a claimed probe says nothing of the child's own states
    "not arrived": (PAPER, expansion(0.9, None, waiting=[4]), "continue"),
    "not arrived, budget spent": (PAPER, expansion(0.9, None, own_steps=100), "remove"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_follows(case):
    growth, x, move = CASES[case]
    before = [(c.slot, c.claim, c.arrived, c.frozen, c.d) for c in x.children]
    direction, waiting, own_steps = x.direction, list(x.waiting), x.own_steps
    assert growth.decide(x, more="no free" not in case) == move
    assert [(c.slot, c.claim, c.arrived, c.frozen, c.d) for c in x.children] == before
    assert (x.direction, x.waiting, x.own_steps) == (direction, waiting, own_steps)


def moves(patience, *history, direction="start", smooth=1.0):
    """What is decided round after round, as the children's discriminabilities change."""
    growth = dataclasses.replace(PAPER, patience=patience, smooth=smooth)
    x = expansion(*history[0], direction=direction)
    decided = []
    for d in history:
        for child, each in zip(x.children, d, strict=True):
            child.d = each
        decided.append(growth.decide(x, more=True))
    return decided


def test_an_expansion_gives_up_after_so_many_rounds_without_progress():
    stuck = [(0.3,)] * 4  # the first round is progress: from nothing to 0.3
    assert moves(3, *stuck) == ["continue"] * 3 + ["remove"]
    assert moves(3, *stuck, direction="add") == ["continue"] * 3 + ["restore"]
    assert moves(4, *stuck) == ["continue"] * 4


def test_patience_zero_never_gives_up():
    assert moves(0, *[(0.3,)] * 50) == ["continue"] * 50


def test_progress_renews_the_patience_and_noise_does_not():
    rising = [(0.3,), (0.3,), (0.4,), (0.4,), (0.5,), (0.5,)]
    assert moves(2, *rising) == ["continue"] * 6
    # up and down below the best is not progress, nor is a hundredth above it
    assert moves(2, (0.3,), (0.2,), (0.3,)) == ["continue", "continue", "remove"]
    assert moves(2, (0.3,), (0.305,), (0.31,)) == ["continue", "continue", "remove"]


def test_one_lucky_episode_does_not_set_the_mark_that_the_next_ones_must_beat():
    lucky = [(0.1,), (0.79,), (0.4,), (0.5,), (0.6,), (0.7,)]
    assert "remove" in moves(3, *lucky)
    assert "remove" not in moves(3, *lucky, smooth=0.3)


def test_a_child_that_satisfies_eta_need_not_progress():
    """Only what is missing to η counts: 0.9 standing still is no reason to give up on the other."""
    rising = [(0.9, 0.1 * i) for i in range(1, 8)]
    assert moves(2, *rising) == ["continue"] * 7


def test_a_fixed_number_of_policies_is_trained_to_the_end_and_kept():
    fixed = Fixed(num_skills=3)
    assert (fixed.n_start, fixed.n_max) == (3, 3)
    for d in ((0.9, 0.9, 0.9), (0.1, 0.1, 0.1)):
        x = expansion(*d, own_steps=10**9)
        assert fixed.decide(x, more=True) == "continue"
        assert all(fixed.salvaged(child, False) and fixed.keeps(child) for child in x.children)


# ---------------------------------------------------------------- one expansion: bookkeeping


def test_an_expansion_survives_json():
    x = Expansion(
        node=3,
        children=[Child(0, claim=4, arrived=False, d=0.25), Child(2, frozen=True, d=0.9)],
        waiting=[7, 1],
        direction="add",
        kept=[Child(2, d=0.9)],
        own_steps=120,
        rounds=6,
    )
    data = json.loads(json.dumps(dataclasses.asdict(x)))
    untouched = json.dumps(data)
    again = Expansion.from_json(data)
    assert again == x
    assert isinstance(again.kept[0], Child)
    assert json.dumps(data) == untouched
    assert PAPER.decide(again, True) == PAPER.decide(x, True)
    assert again == x


def test_free_slots_come_until_all_are_taken():
    x = Expansion(0, [], [])
    for _ in range(5):
        x.children.append(Child(x.free_slot(5)))
    assert sorted(c.slot for c in x.children) == list(range(5))


def test_a_slot_of_the_kept_set_is_not_free():
    """A kept policy may be wanted back: its arrays stay, though it is no child at present."""
    x = Expansion(0, [Child(0), Child(3)], [], kept=[Child(0), Child(2)])
    assert x.free_slot(4) == 1
    x.kept = [Child(1)]
    assert x.free_slot(4) == 2


def test_children_as_a_mask_over_slots():
    x = Expansion(0, [Child(0), Child(2)], [])
    assert x.slots(x.children, 4).tolist() == [True, False, True, False]
    assert x.slots(x.children[1:], 4).tolist() == [False, False, True, False]
    assert x.slots([], 4).tolist() == [False] * 4

"""The plan: who, in which order, how many at once. Properties hold for any fleet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet.roll.plan import Node, Plan, Policy, allowed_out, lines, plan, units_of

OLD, NEW = "old", "new"


def fleet(count: int, **fields: object) -> list[Node]:
    return [Node(f"h{i}", NEW, running=OLD, serving=True, **fields) for i in range(1, count + 1)]  # type: ignore[arg-type]


def hosts(chosen: Plan) -> list[list[str]]:
    return [list(batch.hosts) for batch in chosen.batches]


@pytest.mark.parametrize(
    ("total", "given_", "count"),
    [(6, 2, 2), (6, "2", 2), (6, "25%", 1), (8, "25%", 2), (3, "10%", 1), (1, "100%", 1), (4, 9, 4), (7, "50%", 3)],
)
def test_allowed_out(total: int, given_: int | str, count: int) -> None:
    assert allowed_out(total, given_) == count


@pytest.mark.parametrize("wrong", [0, -1, "0", "0%", "101%", "a third", "", "2.5"])
def test_allowed_out_refuses(wrong: int | str) -> None:
    with pytest.raises(ValueError, match="max_unavailable"):
        allowed_out(5, wrong)


def test_canary_then_batches_in_inventory_order() -> None:
    assert hosts(plan(fleet(6), Policy(max_unavailable=2))) == [["h1"], ["h2", "h3"], ["h4", "h5"], ["h6"]]


def test_named_canaries_go_first_in_inventory_order() -> None:
    chosen = plan(fleet(6), Policy(canary=("h5", "h3"), max_unavailable=2))
    assert hosts(chosen) == [["h3", "h5"], ["h1", "h2"], ["h4", "h6"]]
    assert chosen.batches[0].kind == "canary"


def test_more_canaries_than_may_be_out() -> None:
    assert hosts(plan(fleet(4), Policy(canary=("h1", "h2", "h3"), max_unavailable=2))) == [["h1", "h2"], ["h3"], ["h4"]]


def test_who_runs_the_release_already_is_kept() -> None:
    nodes = [*fleet(2), Node("h3", NEW, running=NEW, serving=True), Node("h4", NEW, running=OLD, serving=True)]
    chosen = plan(nodes, Policy(max_unavailable=2))
    assert hosts(chosen) == [["h1"], ["h2", "h4"]]
    assert [unit.hosts for unit in chosen.kept] == [("h3",)]


def test_after_the_canary_a_second_run_needs_no_other_canary() -> None:
    nodes = [Node("h1", NEW, running=NEW, serving=True), *fleet(5)[1:]]
    assert [batch.kind for batch in plan(nodes, Policy(max_unavailable=2)).batches] == ["batch", "batch"]


def test_an_unaccepted_turn_needs_its_gate() -> None:
    nodes = [Node("h1", NEW, running=NEW, serving=True, settled=False), *fleet(3)[1:]]
    chosen = plan(nodes, Policy())
    assert chosen.batches[0].units[0].action == "gate"
    assert hosts(chosen)[0] == ["h1"]


def test_the_right_release_that_does_not_serve_is_started() -> None:
    assert hosts(plan([Node("h1", NEW, running="", serving=False)], Policy())) == [["h1"]]


def test_an_unreachable_canary_is_stood_in_for() -> None:
    nodes = fleet(4)
    nodes[0] = Node("h1", NEW, reachable=False)
    chosen = plan(nodes, Policy(max_unavailable=2))
    assert hosts(chosen) == [["h2"], ["h3"], ["h4"]], "one of two is out already"
    assert "stands in" in chosen.notes[0]


def test_unreachable_hosts_use_up_what_may_be_out() -> None:
    nodes = fleet(4)
    nodes[3] = Node("h4", NEW, reachable=False)
    chosen = plan(nodes, Policy(max_unavailable=1))
    assert not chosen.batches
    assert [unit.hosts for unit in chosen.blocked] == [("h1",), ("h2",), ("h3",)]


def test_what_is_down_is_mended_first() -> None:
    nodes = fleet(4)
    nodes[2] = Node("h3", NEW, running="", serving=False)
    assert hosts(plan(nodes, Policy(max_unavailable=1))) == [["h3"], ["h1"], ["h2"], ["h4"]]


def test_a_first_deploy_goes_in_batches_too() -> None:
    nodes = [Node(f"h{i}", NEW) for i in range(1, 6)]
    assert hosts(plan(nodes, Policy(max_unavailable=2))) == [["h1"], ["h2", "h3"], ["h4", "h5"]]


def test_racks_are_spread() -> None:
    nodes = [Node(f"h{i}", NEW, running=OLD, serving=True, rack=rack) for i, rack in enumerate("aaabbb", start=1)]
    assert hosts(plan(nodes, Policy(max_unavailable=2))) == [["h1"], ["h2", "h4"], ["h3", "h5"], ["h6"]]


def test_a_group_changes_as_one_with_its_first_rank_in_front() -> None:
    nodes = [
        Node("a2", NEW, running=OLD, serving=True, group="a", rank=1),
        Node("b1", NEW, running=OLD, serving=True, group="b", rank=0),
        Node("a1", NEW, running=OLD, serving=True, group="a", rank=0),
        Node("b2", NEW, running=OLD, serving=True, group="b", rank=1),
    ]
    assert [unit.hosts for unit in units_of(nodes)] == [("a1", "a2"), ("b1", "b2")]
    assert hosts(plan(nodes, Policy(max_unavailable=1))) == [["a1", "a2"], ["b1", "b2"]], "larger than the limit"
    assert hosts(plan(nodes, Policy(max_unavailable=4))) == [["a1", "a2"], ["b1", "b2"]], "the canary goes alone"


def test_a_group_with_a_lost_rank_is_left_alone() -> None:
    nodes = [
        Node("a1", NEW, running=OLD, serving=True, group="a"),
        Node("a2", NEW, reachable=False, group="a", rank=1),
    ]
    chosen = plan(nodes, Policy())
    assert not chosen.batches
    assert chosen.out[0].hosts == ("a1", "a2")


def test_one_role_at_a_time_and_one_of_it_stays() -> None:
    roles = ["prefill", "decode", "prefill", "decode", "decode"]
    nodes = [Node(f"h{i}", NEW, running=OLD, serving=True, role=role) for i, role in enumerate(roles, start=1)]
    assert hosts(plan(nodes, Policy(max_unavailable=3))) == [["h1"], ["h3"], ["h2", "h4"], ["h5"]]


def test_a_canary_that_is_no_host_is_told() -> None:
    chosen = plan(fleet(2), Policy(canary=("h9",)))
    assert "h9" in chosen.notes[0]
    assert hosts(chosen)[0] == ["h1"]


def test_lines_say_what_happens() -> None:
    nodes = [*fleet(2), Node("h3", NEW, reachable=False), Node("h4", NEW, running=NEW, serving=True)]
    text = "\n".join(lines("svc", plan(nodes, Policy(max_unavailable=2)), {n.host: NEW for n in nodes}))
    for part in ("canary", "h1 old -> new", "batch 1", "keep      h4", "out       h3"):
        assert part in text


node = st.builds(
    Node,
    host=st.just(""),
    target=st.just(NEW),
    running=st.sampled_from([OLD, NEW, ""]),
    serving=st.booleans(),
    reachable=st.sampled_from([True, True, True, False]),
    settled=st.booleans(),
    rack=st.sampled_from(["", "a", "b"]),
    group=st.sampled_from(["", "", "", "g1", "g2"]),
    role=st.sampled_from(["", "prefill", "decode"]),
)
limits = st.one_of(st.integers(1, 5), st.integers(1, 100).map(lambda n: f"{n}%"))


@st.composite
def fleets(draw: st.DrawFn) -> list[Node]:
    from dataclasses import replace

    drawn = draw(st.lists(node, min_size=1, max_size=12))
    roles = {n.group: n.role for n in drawn if n.group}
    return [replace(n, host=f"h{i}", role=roles.get(n.group, n.role)) for i, n in enumerate(drawn)]


@given(fleets(), limits)
def test_every_host_is_somewhere_exactly_once(nodes: list[Node], limit: int | str) -> None:
    chosen = plan(nodes, Policy(max_unavailable=limit))
    told = [*chosen.changes]
    for units in (chosen.kept, chosen.out, chosen.blocked):
        told += [host for unit in units for host in unit.hosts]
    assert sorted(told) == sorted(n.host for n in nodes)


@given(fleets(), limits)
def test_never_more_out_than_allowed(nodes: list[Node], limit: int | str) -> None:
    """Play the plan: at no batch are more nodes out than may be, except for what was out before or one lone unit."""
    chosen = plan(nodes, Policy(max_unavailable=limit))
    out = {h for unit in units_of(nodes) if not unit.serving or unit.action == "out" for h in unit.hosts}
    for batch in chosen.batches:
        during = out | set(batch.hosts)
        serving = [unit for unit in batch.units if unit.serving]
        lone = len(batch.units) == 1 and not out - set(batch.hosts)
        assert len(during) <= chosen.width or not serving or lone
        out -= set(batch.hosts)


@given(fleets(), limits)
def test_the_same_fleet_gives_the_same_plan(nodes: list[Node], limit: int | str) -> None:
    policy = Policy(max_unavailable=limit)
    assert plan(nodes, policy) == plan(list(nodes), policy)


@given(st.integers(1, 20), limits)
def test_order_is_the_inventory_s(count: int, limit: int | str) -> None:
    assert list(plan(fleet(count), Policy(max_unavailable=limit)).changes) == [f"h{i}" for i in range(1, count + 1)]


def test_hosts_outside_of_limit_count_and_are_never_changed() -> None:
    beyond = [Node(f"x{i}", OLD, running=OLD, serving=True, outside=True) for i in range(6)]
    chosen = plan([*beyond, *fleet(2)], Policy(max_unavailable="25%"))
    assert (chosen.width, chosen.total) == (2, 8), "25 % of the service, not of what is rolled"
    assert hosts(chosen) == [["h1"], ["h2"]]


def test_one_outside_of_limit_that_is_down_takes_the_room() -> None:
    down = Node("x1", "", reachable=False, outside=True)
    chosen = plan([down, *fleet(2)], Policy())
    assert not chosen.batches
    assert [unit.hosts for unit in chosen.blocked] == [("h1",), ("h2",)]
    assert "x1: outside of --limit and not serving" in chosen.notes[-1]
    mended = plan([down, Node("h1", NEW)], Policy())
    assert hosts(mended) == [["h1"]], "who is down itself costs nothing more"


def test_a_group_that_limit_splits_is_not_changed() -> None:
    first = Node("h1", NEW, running=OLD, serving=True, group="pair", rank=0)
    second = Node("h2", OLD, running=OLD, serving=True, group="pair", rank=1, outside=True)
    chosen = plan([first, second], Policy())
    assert not chosen.batches
    assert [unit.hosts for unit in chosen.blocked] == [("h1", "h2")]


def test_the_last_node_that_serves_goes_after_those_that_can_be_mended() -> None:
    both = [Node("h1", NEW, running=OLD, serving=True), Node("h2", NEW)]
    assert hosts(plan(both, Policy(max_unavailable=2))) == [["h2"], ["h1"]]
    lost = [Node("h1", NEW, running=OLD, serving=True), Node("h2", NEW, reachable=False)]
    assert hosts(plan(lost, Policy(max_unavailable=2))) == [["h1"]], "nothing can be mended first"

"""Groups, entitlements and floors in the policies: against the slow oracle, and what they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    Decision,
    Feedback,
    Groups,
    Hedge,
    InvalidArgument,
    State,
    Stream,
    load_policy,
    metrics,
    offline_optimum,
    run,
    simulate,
    streams,
)
from alphafair.jit import repeated
from alphafair.math.floors import GroupMemory, group_memory, project_on_floors
from alphafair.offline import context_reward_totals
from tests import INTERPRETED, naive_groups
from tests.algorithms.test_events import GROUPS, KINDS
from tools.site.illustrations import listed_twice


def test_every_group_and_every_arm_starts_with_1() -> None:
    """The account of a group, over its entitlement, is in each of its arms; what arms earned counts from 1, too."""
    policy = AlphaFairAdaptive(2, 3, groups=Groups(["a", "a", "b"], entitlements={"a": 4.0}))
    arrays = policy.snapshot().arrays
    assert arrays["account"].tolist() == [0.25, 0.25, 1.0]
    assert (arrays["earned"].tolist(), policy.accounts.tolist()) == ([1.0] * 3, [1.0, 1.0])
    assert policy.cumulative_rewards.tolist() == [0.0] * 3
    policy.update(policy.choose(0, available=[False, True, False]), 0.5)
    assert (policy.accounts.tolist(), policy.cumulative_rewards.tolist()) == ([1.5, 1.0], [0.0, 0.5, 0.0])


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_one_arm_change_nothing_to_the_last_bit(kind: str) -> None:
    made, _, options = KINDS[kind]
    stream = streams.ratings(n_rounds=1500, n_contexts=3, n_arms=5, seed=2)
    plain = made(3, 5, alpha=0.7, **options)
    grouped = made(3, 5, alpha=0.7, **options, groups=Groups(list("edcba"), [1] * 5, 0.0))
    traces = [simulate(policy, stream, record_every=100) for policy in (plain, grouped)]
    np.testing.assert_array_equal(traces[0].accounts, traces[1].accounts)
    np.testing.assert_array_equal(plain.accounts, grouped.accounts)
    np.testing.assert_array_equal(traces[0].pulls, traces[1].pulls)
    for context in range(3):
        np.testing.assert_array_equal(plain.probabilities(context), grouped.probabilities(context))


@pytest.mark.parametrize("terms", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_whole_runs_equal_single_steps_and_a_log_replays(kind: str, terms: str) -> None:
    made, _, options = KINDS[kind]
    stream = streams.ratings(n_rounds=400, n_contexts=3, n_arms=4, seed=3)
    one, two, three = (made(3, 4, alpha=0.7, **options, groups=Groups(**GROUPS[terms])) for _ in range(3))
    whole, steps = simulate(one, stream, log=True), simulate(two, stream, compiled=False)
    np.testing.assert_array_equal(whole.accounts, steps.accounts)
    for name, array in one.snapshot().arrays.items():
        np.testing.assert_array_equal(array, two.snapshot().arrays[name])
    if one.feedback == "bandit":
        run.over_log(three, whole.log)  # type: ignore[arg-type]
        np.testing.assert_array_equal(one.accounts, three.accounts)


@pytest.mark.parametrize("kind", KINDS)
def test_renaming_arms_and_groups_renames_the_answer(kind: str) -> None:
    """Other numbers for the arms, other labels for the groups: the same answer under its new names."""
    made, _, options = KINDS[kind]
    stream = streams.ratings(n_rounds=600, n_contexts=2, n_arms=4, seed=4)
    order = np.array([2, 0, 3, 1])
    renamed = streams.ratings(n_rounds=600, n_contexts=2, n_arms=4, seed=4)
    renamed = type(stream)(stream.contexts, stream.items, np.ascontiguousarray(stream.reward_table[:, order]))
    labels = ["a", "b", "a", "c"]
    said = {"pull_floor": {"a": 0.2}, "entitlements": {"b": 2.0}}
    other = {"pull_floor": {"A": 0.2}, "entitlements": {"B": 2.0}}
    one = made(2, 4, alpha=0.7, **options, groups=Groups(labels, **said))
    two = made(2, 4, alpha=0.7, **options, groups=Groups([labels[i].upper() for i in order], **other))
    rng = np.random.default_rng(0)
    for t in range(600):
        decision = one.choose(int(stream.contexts[t]), rng=rng)
        rewards = stream.rewards(t)
        p = np.ascontiguousarray(decision.probabilities[order])
        place = int(np.flatnonzero(order == decision.arm)[0])
        if one.feedback == "full":
            one.update(decision, rewards)
            two.update(decision._replace(arm=place, probabilities=p), renamed.rewards(t))
        else:
            one.update(decision, float(rewards[decision.arm]))
            two.update(decision._replace(arm=place, probabilities=p), float(rewards[decision.arm]))
    np.testing.assert_allclose(one.probabilities(0)[order], two.probabilities(0), rtol=1e-7, atol=1e-9)
    here = dict(zip(one.groups.labels, one.accounts.tolist(), strict=True))
    there = {str(g).lower(): a for g, a in zip(two.groups.labels, two.accounts.tolist(), strict=True)}
    assert here == pytest.approx(there, rel=1e-9)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_arm_is_drawn_with_at_least_the_floor_in_every_round(kind: str, masked: bool) -> None:
    made, _, options = KINDS[kind]
    policy = made(2, 5, alpha=0.5, **options, groups=Groups(pull_floor=0.11))
    rng = np.random.default_rng(1)
    for t in range(300):
        mask = rng.random(5) < 0.6
        mask[rng.integers(5)] = True
        decision = policy.choose(t % 2, rng=rng, available=mask if masked else None)
        there = mask if masked else np.ones(5, dtype=bool)
        assert (decision.probabilities[there] >= 0.11).all()
        assert not decision.probabilities[~there].any()
        rewards = rng.random(5) * np.arange(5) / 4
        policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_group_has_its_share_of_every_draw(kind: str, masked: bool) -> None:
    made, _, options = KINDS[kind]
    labels, floors = np.array(list("aabbc")), {"a": 0.4, "c": 0.3}
    policy = made(2, 5, alpha=0.5, **options, groups=Groups(labels, pull_floor=floors))
    rng = np.random.default_rng(1)
    for t in range(300):
        mask = rng.random(5) < 0.6
        mask[rng.integers(5)] = True
        there = mask if masked else np.ones(5, dtype=bool)
        decision = policy.choose(t % 2, rng=rng, available=there if masked else None)
        assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert not decision.probabilities[~there].any()
        for group, floor in floors.items():
            if there[labels == group].any():
                assert decision.probabilities[labels == group].sum() >= floor - 1e-15
        rewards = rng.random(5) * np.arange(5) / 4
        policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_that_leaves_everything_changes_nothing(kind: str) -> None:
    made, _, options = KINDS[kind]
    for said in GROUPS.values():
        policy = made(1, 4, alpha=0.5, **options, groups=Groups(**said))
        rng = np.random.default_rng(5)
        for _ in range(40):
            decision = policy.choose(0, rng=rng)
            policy.update(decision, rng.random(4) if policy.feedback == "full" else float(rng.random()))
        everything = policy.probabilities(0, available=[True] * 4)
        np.testing.assert_allclose(everything, policy.probabilities(0), rtol=1e-12)


def floored(of_arms: np.ndarray, floors: np.ndarray) -> GroupMemory:
    """What kernels are told about groups with floors."""
    left, alike = max(0.0, 1.0 - floors.sum()), np.ones(len(of_arms))
    return group_memory(of_arms, alike, pooled=True, arm_floor=0.0, group_floors=floors, least_unpromised=left)


def test_the_projection_is_the_nearest_point_that_keeps_the_floors() -> None:
    """Against the oracle's halving, and no random point of the set is nearer."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        n, n_groups = int(rng.integers(2, 8)), int(rng.integers(1, 4))
        of_arms = np.unique(rng.integers(n_groups, size=n), return_inverse=True)[1]
        floors = rng.dirichlet(np.ones(of_arms.max() + 2))[:-1] * rng.choice([0.5, 1.0, 1.0])
        v, out = rng.normal(size=n), np.empty(n)
        memory = floored(of_arms, floors)
        repeated(project_on_floors, 10**6)(memory, v, -np.inf, out)
        slow = naive_groups.project_on_floors(v, of_arms.tolist(), dict(enumerate(floors)))
        np.testing.assert_allclose(out, slow, atol=1e-12)
        some, begun_above = rng.random(n) < 0.5, np.empty(n)  # any set of arms gives a lower bound to begin from
        some[0] = True
        repeated(project_on_floors, 10**6)(memory, v, (v[some].sum() - 1.0) / some.sum(), begun_above)
        np.testing.assert_allclose(begun_above, slow, atol=1e-12)
        assert out.sum() == pytest.approx(1.0, abs=1e-12)
        y, z = rng.dirichlet(np.ones(n)), np.zeros(n)
        for g, floor in enumerate(floors):
            z[of_arms == g] = floor * rng.dirichlet(np.ones((of_arms == g).sum()))
        other = z + (1 - floors.sum()) * y
        assert ((v - out) ** 2).sum() <= ((v - other) ** 2).sum() + 1e-12


def test_the_projection_on_the_floors_of_many_groups() -> None:
    """By what makes it the nearest point: in a group v - x is one number on the support and no less off it, and groups
    above their floors have the least of these numbers in common."""
    rng = np.random.default_rng(8)
    n, n_groups = 600, 100
    of_arms = np.arange(n) % n_groups
    for scale in (1e-3, 0.1, 10.0):
        floors = np.where(rng.random(n_groups) < 0.5, rng.dirichlet(np.ones(n_groups)), 0.0)
        v, out = 1 / n + scale * rng.normal(size=n), np.empty(n)
        memory = floored(of_arms, floors)
        repeated(project_on_floors, 10**6)(memory, v, -np.inf, out)
        share = np.bincount(of_arms, out)
        assert out.min() >= 0.0
        assert out.sum() == pytest.approx(1.0, abs=1e-9)
        assert (share >= floors - 1e-12).all()
        above = share > floors + 1e-9
        common = max((v - out)[(out > 0) & above[of_arms]], default=np.inf)
        for g in range(n_groups):
            inside, taken = of_arms == g, (v - out)[(of_arms == g) & (out > 0)]
            own = taken.max() if len(taken) else common
            np.testing.assert_allclose(taken, own, atol=1e-9)
            assert (v[inside & (out == 0)] <= own + 1e-9).all()
            assert own <= common + 1e-9
            assert not above[g] or own == pytest.approx(common, abs=1e-9)


def test_infeasible_floors_and_invalid_groups_are_refused() -> None:
    policy = AlphaFair(1, 4, groups=Groups(pull_floor=0.25))
    with pytest.raises(InvalidArgument, match="1 over 5 arms"):
        policy.grow(n_arms=5)
    assert policy.n_arms == 4
    with pytest.raises(InvalidArgument, match="entitlements must be None: this policy has none"):
        AlphaFair(1, 2).grow(n_arms=3, groups=Groups(entitlements=[2.0]))
    with pytest.raises(InvalidArgument, match="this policy has no groups"):
        AlphaFairBandit(1, 2).grow(n_arms=3, groups=["a"])
    with pytest.raises(InvalidArgument, match=r"groups\.pull_floor must be None for new arms"):
        AlphaFair(1, 2, groups=["a", "b"]).grow(n_arms=3, groups=Groups(["a"], pull_floor=0.1))
    with pytest.raises(InvalidArgument, match="groups must be None if no arm is added"):
        AlphaFair(1, 2, groups=["a", "b"]).grow(n_contexts=2, groups=["a"])
    grouped = AlphaFair(1, 2, groups=["a", "b"])
    with pytest.raises(InvalidArgument, match=r"state\.settings must be with groups"):
        grouped.restore(AlphaFair(1, 2, groups=["a", "a"]).snapshot())
    with pytest.raises(InvalidArgument, match="state"):
        grouped.restore(AlphaFair(1, 2).snapshot())


def test_a_damaged_account_of_a_group_is_refused() -> None:
    policy = AlphaFair(1, 3, groups=Groups(["a", "b", "b"], {"b": 2.0}))
    policy.retire(0)
    state = policy.snapshot()
    for name, place, value in (("group_accounts", 0, 0.0), ("group_accounts", 1, 1.0), ("account", 0, 3.0)):
        arrays: dict[str, Any] = {key: np.array(array) for key, array in state.arrays.items()}
        arrays[name][place] = value
        with pytest.raises(InvalidArgument, match="damaged"):
            policy.restore(State(state.policy, state.version, state.settings, state.rng, arrays))


def test_alpha_can_change_with_entitlements() -> None:
    policy = AlphaFairAdaptive(1, 3, alpha=0.5, groups=Groups(["a", "b", "b"], {"b": 2.0}), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        policy.update(policy.choose(0), float(rng.random()))
    accounts = policy.accounts
    policy.set_alpha(0.9)
    np.testing.assert_array_equal(policy.accounts, accounts)
    again = load_policy(policy.snapshot())
    np.testing.assert_array_equal(again.probabilities(0), policy.probabilities(0))


def world(n_rounds: int, seed: int = 0) -> Stream:
    """Six arms, three contexts, rewards that stay what they are."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.2, 0.9, size=(3, 6))
    contexts = rng.integers(3, size=n_rounds)
    return Stream.from_arrays(contexts, np.clip(means[contexts] + 0.1 * rng.normal(size=(n_rounds, 6)), 0.0, 1.0))


LONG: dict[str, dict[str, Any]] = {
    "groups": {"labels": list("aabbbc")},
    "entitlements": {"entitlements": [1, 1, 2, 1, 4, 1]},
    "arm floor": {"pull_floor": 0.08},
    "group floors": {"labels": list("aabbbc"), "pull_floor": {"c": 0.5}},
    "everything": {"labels": list("aabbbc"), "entitlements": {"a": 2.0}, "pull_floor": {"b": 0.3, "c": 0.2}},
}


@pytest.mark.compiled
@pytest.mark.parametrize("terms", LONG)
@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_accounts_approach_the_optimum_s(feedback: str, terms: str) -> None:
    """On a stationary stream: every group's account, and the value, which never exceeds the optimum's certificate."""
    stream = world(60_000)
    policy = AlphaFairAdaptive(3, 6, alpha=0.9, feedback=feedback, groups=Groups(**LONG[terms]))  # type: ignore[arg-type]
    simulate(policy, stream)
    best = offline_optimum(context_reward_totals(stream), 0.9, groups=Groups(**LONG[terms]))
    s = policy.groups.entitlements
    value = metrics.alpha_performance(policy.accounts, 0.9, groups=Groups(entitlements=s))
    assert value >= 0.99 * best.value
    assert value <= best.value * (1.0 + 5e-3)  # draws may be lucky
    np.testing.assert_allclose(policy.accounts, best.accounts, rtol=0.02 if feedback == "full" else 0.09)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_entitlements_are_ratios_of_accounts(kind: str) -> None:
    """Three arms alike, entitled to 1, 2 and 4: so are their accounts, to two percent."""
    made, _, options = KINDS[kind]
    n_rounds = 4_000_000 if kind == "bandit" else 60_000
    stream = Stream(np.zeros(n_rounds, np.int32), np.zeros(n_rounds, np.int32), np.full((1, 3), 0.7))
    policy = made(1, 3, alpha=0.9, **options, groups=Groups(entitlements=[1, 2, 4]))
    simulate(policy, stream)
    ratios = policy.accounts / policy.accounts[0]
    np.testing.assert_allclose(ratios, [1, 2, 4], rtol=0.02)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_floors_hold_over_runs(kind: str) -> None:
    """Pulls of every arm are at least binomial with the floor: all of them within a band that fails once in 1e6."""
    made, _, options = KINDS[kind]
    stream, nu = world(20_000, seed=3), 0.05
    for seed in range(5):
        trace = simulate(made(3, 6, alpha=0.5, **options, groups=Groups(pull_floor=nu)), stream, seed=seed)
        least = binom.ppf(1e-6 / 6, stream.n_rounds, nu)
        assert (trace.pulls >= least).all()


@pytest.mark.compiled
def test_splitting_an_item_pays_nothing_with_groups_and_twice_without() -> None:
    shares = listed_twice()
    once, twice = (shares["fair to sellers"][listing] for listing in shares["fair to sellers"])
    np.testing.assert_allclose(once, twice, atol=0.01)
    once, twice = (shares["fair to items"][listing] for listing in shares["fair to items"])
    assert twice[0] == pytest.approx(0.4, abs=0.01)
    assert once[0] == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("seed", range(2 if INTERPRETED else 12))
@pytest.mark.parametrize("kind", ["alpha-fair", "adaptive full"])
def test_the_certificate_holds_on_every_run(kind: str, seed: int) -> None:
    """conftest.py checks it after `simulate`; here with the worst rewards and random options."""
    made, _, options = KINDS[kind]
    rng = np.random.default_rng([seed, len(kind)])
    n = int(rng.integers(2, 7))
    stream = Stream.from_arrays(rng.integers(3, size=300), rng.choice([0.0, 0.1, 1.0], size=(300, n)), n_contexts=3)
    groups = rng.integers(1 + n // 2, size=n)
    n_groups = len(np.unique(groups))
    floor: Any = rng.choice([0.0, 0.7]) / n if seed % 2 else (0.8 * rng.dirichlet(np.ones(n_groups))).tolist()
    entitlements = rng.choice([0.3, 1.0, 5.0], size=n_groups)
    said = Groups(groups, entitlements, floor)
    policy = made(3, n, alpha=float(rng.choice([0.0, 0.5, 0.9])), **options, groups=said)
    trace = simulate(policy, stream, delay=None if seed % 3 else 4)
    bounds = metrics.certificates(context_reward_totals(stream), trace, policy.alpha, groups=said)
    best = offline_optimum(context_reward_totals(stream), policy.alpha, groups=said)
    assert best.value <= bounds.optimum * (1.0 + 1e-9)


@pytest.mark.compiled
@pytest.mark.parametrize("floor", [0.05, 0.13, 1.0 / 6.0])
def test_the_bound_in_expectation_holds_under_a_floor(floor: float) -> None:
    """Theorem 1 with floors: the mean over seeds, against the optimum that keeps the floor."""
    stream, regrets, bounds = world(3_000, seed=7), [], []
    best = offline_optimum(context_reward_totals(stream), 0.5, groups=Groups(pull_floor=floor))
    for seed in range(20):
        policy = AlphaFairAdaptive(3, 6, alpha=0.5, groups=Groups(pull_floor=floor))
        trace = simulate(policy, stream, seed=seed)
        regrets.append(float(metrics.approximate_regret(best.value, trace, 0.5)[-1]))
        bounds.append(metrics.bound_in_expectation(policy))
    assert np.mean(regrets) < np.mean(bounds)
    learned, log = policy.snapshot().arrays, math.log(3_000)  # from what was added up
    added = (log + 1 + math.sqrt(7 / 6)) * learned["learner_roots"] + learned["explored"]
    added += 2 * learned["peaks"] / 3_000
    bound = (1 - 6 * floor) * added + (log / 2 + 2.4) * learned["mixing_roots"]
    bound += 16 * learned["head_start"]
    assert policy.expected_surrogate_regret_bound == pytest.approx(bound, rel=1e-9)


def test_no_bound_is_claimed_under_floors_for_groups() -> None:
    silent = AlphaFairAdaptive(3, 6, alpha=0.5, groups=Groups(list("aabbcc"), pull_floor={"a": 0.2}))
    simulate(silent, world(100, seed=7))
    assert silent.expected_surrogate_regret_bound is None


@pytest.mark.parametrize("kind", KINDS)
def test_snapshots_work_if_floors_sum_to_1(kind: str) -> None:
    """An arm outside of the promised group has probability 0, and nothing divides by it."""
    made, _, options = KINDS[kind]
    policy: Any = made(1, 4, groups=Groups(["a", "a", "b", "b"], pull_floor={"a": 1.0}), seed=0, **options)
    rewards = np.array([0.1, 0.5, 0.9, 0.3])
    for _ in range(30):
        decision = policy.choose(0)
        policy.update(decision, rewards if policy.feedback is Feedback.FULL else float(rewards[decision.arm]))
        assert decision.probabilities[2:].max() <= 1e-15
    again = load_policy(policy.snapshot())
    np.testing.assert_array_equal(again.probabilities(0), policy.probabilities(0))


def test_arms_of_a_stream_arrive_in_their_groups() -> None:
    rng = np.random.default_rng(0)
    labels = ["a", "b", "a", "c"]
    stream = Stream.from_arrays(
        rng.integers(2, size=200), rng.random((200, 4)), arrivals=[0, 0, 50, 120], departures=[90, 200, 200, 200]
    )
    for compiled in (True, False):
        policy = AlphaFair(2, 2, groups=Groups(labels[:2], {"b": 2.0}))
        trace = simulate(policy, stream, groups=labels, compiled=compiled)
        assert policy.groups.labels == ("a", "b", "c")
        np.testing.assert_allclose(policy.accounts[:2], policy.groups.accounts(trace.final)[:2], rtol=1e-12)
        assert policy.accounts[2] > policy.groups.accounts(trace.final)[2]  # it entered with what others had
    with pytest.raises(InvalidArgument, match="4 labels, one per arm"):
        simulate(AlphaFair(2, 2, groups=labels[:2]), stream, groups=labels[:3])


def test_groups_of_a_stream_that_do_not_fit_are_refused_and_change_nothing() -> None:
    stream = Stream.from_arrays([0] * 4, np.full((4, 3), 0.5), arrivals=[0, 0, 2])
    odd: list[tuple[Any, Any, str]] = [
        (AlphaFair(1, 2, groups=["a", "b"]), 5, "3 labels"),
        (AlphaFair(1, 2, groups=["a", "b"]), ["b", "a", "a"], "the labels of the policy"),
        (Hedge(1, 2), ["a", "b", "a"], "hedge does not support groups"),
    ]
    for policy, groups, said in odd:
        with pytest.raises(InvalidArgument, match=said):
            simulate(policy, stream, groups=groups)
        assert policy.n_arms == 2


@pytest.mark.parametrize("made", [AlphaFairBandit, AlphaFairAdaptive])
def test_rewards_may_be_late_when_a_group_with_a_floor_has_left(made: Any) -> None:
    """What was drawn under its floor has smaller propensities than what can be drawn now."""
    policy = made(1, 4, groups=Groups(["a", "b", "b", "b"], pull_floor={"a": 0.999}), seed=0)
    for _ in range(50):
        decision = policy.choose(0)
        policy.update(decision, [0.5, 0.9, 0.1, 0.1][decision.arm])
    p = policy.probabilities(0)
    arm = int(p.argmin())
    late = Decision(0, arm, float(p[arm]), p)
    policy.retire(0)
    policy.update(late, 0.25)
    assert policy.cumulative_rewards[arm] > 0.2
    with pytest.raises(InvalidArgument, match="propensity"):
        policy.update(late._replace(propensity=1e-9, probabilities=None), 0.25)


@pytest.mark.parametrize("terms", [{"entitlements": [1.0, 1.0, 2.0]}, {"pull_floor": [0.0, 0.0, 0.95]}])
@pytest.mark.parametrize("kind", KINDS)
def test_settings_of_arms_equal_those_of_groups_of_one_arm(kind: str, terms: dict[str, Any]) -> None:
    """Without groups: as the same policy with one group per arm, through all that is made of it."""
    made, _, options = KINDS[kind]
    alone, grouped = (
        made(1, 3, alpha=0.6, seed=3, **options, groups=Groups(labels, **terms)) for labels in (None, list("abc"))
    )
    late = [policy.choose(0) for policy in (alone, grouped)]
    for t in range(60):
        if t == 20:
            alone.retire(2)
            grouped.retire(2)
        if t == 40:
            alone, grouped = load_policy(alone.snapshot()), load_policy(grouped.snapshot())
        rewards = np.random.default_rng(t).random(3)
        for policy in (alone, grouped):
            decision = policy.choose(0)
            policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))
    for policy, decision in zip((alone, grouped), late, strict=True):
        policy.update(decision, np.full(3, 0.5) if policy.feedback == "full" else 0.5)
    np.testing.assert_array_equal(alone.cumulative_rewards, grouped.cumulative_rewards)
    np.testing.assert_array_equal(alone.accounts, grouped.accounts)
    np.testing.assert_allclose(alone.accounts, alone.cumulative_rewards + 1.0, rtol=1e-12)
    np.testing.assert_array_equal(alone.fresh().probabilities(0), grouped.fresh().probabilities(0))


@pytest.mark.parametrize("made", [AlphaFairBandit, AlphaFairAdaptive])
@pytest.mark.parametrize(("floor", "least"), [({"a": 0.5, "b": 0.5}, 0.5), (0.2, None)])
def test_a_propensity_below_every_floor_is_refused(made: Any, floor: Any, least: float | None) -> None:
    """Also where everything is promised; under a floor for arms, whatever is below it."""
    policy = made(1, 4, groups=Groups(list("aabb"), pull_floor=floor), seed=0)
    bound = 0.2 if least is None else least * policy.fresh().stepper.least_propensity(0) / 0.5
    with pytest.raises(InvalidArgument, match="propensity"):
        policy.update(Decision(0, 1, 0.99 * bound, None), 1.0)
    assert (policy.cumulative_rewards == 0.0).all()
    for _ in range(300):
        decision = policy.choose(0)
        assert decision.propensity >= policy.stepper.least_propensity(0) > 0.0
        policy.update(decision, 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_drawing_alone_draws_what_choosing_does(kind: str) -> None:
    made, _, options = KINDS[kind]
    policy = made(2, 4, alpha=0.7, **options, groups=Groups(**GROUPS["everything"]))
    rng = np.random.default_rng(8)
    for t in range(30):
        uniform = float(rng.random())
        decision = policy.choose(t % 2, rng=type("Known", (), {"random": lambda _, known=uniform: known})())
        assert policy.stepper.draw_alone(t % 2, uniform) == (decision.arm, decision.propensity)
        policy.update(decision, rng.random(policy.n_arms) if policy.feedback == "full" else float(rng.random()))
        if t == 15:
            policy.retire(1)

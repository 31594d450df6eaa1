"""Every policy of `alphafair.notions`, in every variant that its class names, passes every check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alphafair import notions
from alphafair.checks import CHECKS, NOT_APPLICABLE, Subject
from alphafair.notions import NOTIONS
from tests import INTERPRETED

HALVES = {"low": {0: 0.3, 1: 0.3}, "high": {1: 0.65}, "gap": 1.0}
VARIANTS = [(kind, variant) for kind in NOTIONS for variant in kind.traits.variants(3, 4)]
VARIANTS.append((notions.ConstrainedGreedy, "halves"))
# The checks that really do not apply, by policy, or that fail for a reason.
NOT_CHECKED = {
    ("constrained-greedy-halves", "names_do_not_matter"): "its groups name arms by their numbers",
}
SAYS_SO = {  # a promise around another policy has no kernels
    "promised": (
        "stepwise_equals_compiled",
        "interpreted_equals_compiled",
        "one_compiled_signature",
        "memory_does_not_grow",
    ),
    "horizon-fair": ("unseen_rewards_do_not_matter",),  # it sees all rewards
}
CHECKED = ("bad_input_is_refused", "snapshot_after_changes") if INTERPRETED else tuple(CHECKS)


def settings_of(kind: Any, variant: str, n_contexts: int, n_arms: int) -> dict[str, Any]:
    if variant == "halves":
        return {"groups": [arm % 2 for arm in range(n_arms)], **HALVES}
    settings: dict[str, Any] = kind.traits.variants(n_contexts, n_arms)[variant]
    return settings


def test_nobody_is_left_out() -> None:
    files = {path.stem for path in Path(notions.__file__).parent.glob("[a-z]*.py")}
    assert {kind.__module__.rpartition(".")[2] for kind in NOTIONS} == files
    assert {kind for kind, _ in VARIANTS} == set(NOTIONS)
    known = {"-".join(filter(None, (kind.name, variant))) for kind, variant in VARIANTS}
    assert {name for name, _ in NOT_CHECKED} <= known
    assert len({kind.name for kind in NOTIONS}) == len(NOTIONS)


@pytest.mark.parametrize("check", CHECKED)
@pytest.mark.parametrize(
    ("kind", "variant"), VARIANTS, ids=["-".join(filter(None, (kind.name, variant))) for kind, variant in VARIANTS]
)
def test_conformance(kind: type, variant: str, check: str) -> None:
    name = "-".join(filter(None, (kind.name, variant)))  # type: ignore[attr-defined]
    subject = Subject(kind, lambda n_contexts, n_arms: settings_of(kind, variant, n_contexts, n_arms))
    if (name, check) in NOT_CHECKED:
        with pytest.raises(AssertionError):  # if it passes, the exception is out of date
            CHECKS[check](subject)
        return
    message = CHECKS[check](subject) or ""
    if check.startswith("slates_"):
        assert "shows one arm per decision" in message or INTERPRETED, message
        return
    if check == "others_agree_in_every_mode":
        assert "learns nothing from others" in message or INTERPRETED, message
        return
    says_so = message.startswith(NOT_APPLICABLE)
    assert says_so == (check in SAYS_SO.get(kind.name, ())) or INTERPRETED, message  # type: ignore[attr-defined]

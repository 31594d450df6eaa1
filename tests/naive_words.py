"""The oracle of the report's words: the numbers and names that a sentence must have, in their order.

Everything is worked out again from results.json, with nothing of the package. A number agrees with what is printed if
it is the same to the last printed digit; names may begin with a great letter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

NUMBER = re.compile(r"(?<![\w.])\N{MINUS SIGN}?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-\N{MINUS SIGN}]\d+)?%?")
ORDER = ["alpha-fair", "alpha-fair-bandit", "independent-alpha-fair", "scale-free", "hedge", "fair-cb"]
LOWER = ("standard_regret", "approximate_regret")  # the lower, the better

Token = str | float
Results = Mapping[str, Any]


def printed(text: str) -> tuple[float, float]:
    """A printed number, and half of its last digit.

    >>> printed("1,231.30"), printed("12.5%"), printed("8.0e-07")
    ((1231.3, 0.005), (0.125, 0.0005), (8e-07, 5e-09))
    """
    plain = text.replace(",", "").replace("\N{MINUS SIGN}", "-").rstrip("%")
    digits, _, power = plain.partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) / (100.0 if text.endswith("%") else 1.0)
    return float(plain) / (100.0 if text.endswith("%") else 1.0), unit / 2.0


def misread(text: str, expected: Sequence[Token]) -> str:
    """What is wrong with a text, if anything: a number that should not be there, or a name or number that should."""
    text, at = text.lower(), 0
    for token in expected:
        found = NUMBER.search(text, at)
        if isinstance(token, str):
            start = text.find(token.lower(), at)
            if start < 0:
                return f"no {token!r} in {text[at:]!r}"
            if found and found.start() < start:
                return f"{found[0]} before {token!r} in {text[at:]!r}"
            at = start + len(token)
        else:
            if not found:
                return f"no {token} in {text[at:]!r}"
            value, half = printed(found[0])
            if not abs(value - token) <= half * (1 + 1e-6) + 1e-12 * abs(token):
                return f"{found[0]} is not {token} in {text[at:]!r}"
            at = found.end()
    left = NUMBER.search(text, at)
    return f"{left[0]} is one too many in {text!r}" if left else ""


def ordered(contenders: Results) -> list[str]:
    def place(label: str) -> tuple[int, bool, str]:
        policy = contenders[label]["policy"]
        rank = ORDER.index(policy) if policy in ORDER else len(ORDER) + (policy == "uniform")
        return rank, contenders[label]["feedback"] != "full", label

    return sorted(contenders, key=place)


def ends(experiment: Results, series: str) -> dict[str, float]:
    """Where everybody ends, the best first."""
    found = {label: each[series]["mean"][-1] for label, each in experiment["contenders"].items()}
    sign = 1 if series in LOWER else -1
    return dict(sorted(found.items(), key=lambda item: (sign * item[1], item[0])))


def factor(alpha: float) -> float:
    return float((1 - alpha) ** -(1 - alpha))


def band(experiment: Results, label: str, series: str, *, size: bool = False) -> list[Token]:
    """The last mean, and its interval if it has one; for a size without its sign."""
    mean, low, high = (experiment["contenders"][label][series][side][-1] for side in ("mean", "low", "high"))
    if size and mean < 0:
        mean, low, high = -mean, -high, -low
    return [mean, 0.95, low, high] if high > low else [mean]


def spread(mean: float, low: float, high: float) -> list[Token]:
    """Half of a band, both ends of one that was cut off, nothing where nothing is random."""
    if high <= low:
        return []
    return [(high - low) / 2] if abs(high + low - 2 * mean) <= 0.01 * (high - low) else [low, high]


def doubt(experiment: Results, series: str) -> list[Token]:
    ahead = experiment["first"][series]["ahead"]
    close = sorted(label for label in ahead if ahead[label]["low"] <= 0)
    return ["do not tell it from", *close] if close else []


def performance(experiment: Results) -> list[Token]:
    """Level l of alpha-performance is that of N arms with R each: N R^(1-a) / (1-a) = l."""
    alpha, n = experiment["alpha"], experiment["n_arms"]

    def each(level: float) -> float:
        return float(np.exp(np.log(level * (1 - alpha) / n) / (1 - alpha)))

    scores, best = ends(experiment, "alpha_performance"), experiment["optimum"]["values"][-1]
    (first, top), *_, (last, least) = scores.items()
    others = [label for label in ordered(experiment["contenders"]) if label != "uniform"]
    gaps = {label: experiment["contenders"][label]["gap_closed"] for label in others}
    behind = [label for label in others if gaps[label]["high"] < 0]
    close = [label for label in others if gaps[label]["low"] < 0 <= gaps[label]["high"]]
    return [
        *(first, "highest", *band(experiment, first, "alpha_performance"), *doubt(experiment, "alpha_performance")),
        *("every arm had earned", each(top), "optimum", best, each(best), last, "lowest", least, each(least)),
        *(behind or ["nobody"]),
        *("below uniform play", scores["uniform"], *close),
    ]


def jain(experiment: Results) -> list[Token]:
    scores, contenders = ends(experiment, "jain_index"), experiment["contenders"]
    first, *rest = scores
    ours = next(label for label in scores if label.startswith("\u03b1-FairCB"))
    earlier: list[Token] = []
    for label in scores:
        mean, our = contenders[label]["jain_index"]["mean"], contenders[ours]["jain_index"]["mean"]
        ahead = [t for t, one, other in zip(experiment["rounds"], mean, our, strict=True) if one > other]
        if ahead and ahead[-1] != experiment["rounds"][-1]:
            earlier += [label, ahead[-1]]
    return [
        *(first, "most equal", *band(experiment, first, "jain_index"), *doubt(experiment, "jain_index")),
        *(token for label in rest for token in (label, scores[label])),
        1 / experiment["n_arms"],
        *([*earlier, "more equal than", ours] if earlier else []),
    ]


def regret(experiment: Results) -> list[Token]:
    scores = ends(experiment, "standard_regret")
    first, *_, last = scores
    side = {label: "below the optimum" if scores[label] > 0 else "above the optimum" for label in (first, last)}
    return [
        *(first, "best", *band(experiment, first, "standard_regret", size=True), side[first]),
        *doubt(experiment, "standard_regret"),
        *(last, "worst", *band(experiment, last, "standard_regret", size=True), side[last]),
        experiment["optimum"]["gaps"][-1],
    ]


def approximate(experiment: Results) -> list[Token]:
    scores = ends(experiment, "approximate_regret")
    first, *_, last = scores
    c = factor(experiment["alpha"])
    return [
        *(first, "lowest", *band(experiment, first, "approximate_regret")),
        *(*doubt(experiment, "approximate_regret"), last, "highest", scores[last]),
        *("counts", c, "optimum", experiment["optimum"]["values"][-1] * (1 - c)),
        *(["learns nothing", scores["uniform"]] if scores["uniform"] < 0 else []),
    ]


def who(experiment: Results) -> list[Token]:
    labels = ordered(experiment["contenders"])
    earned = {label: experiment["contenders"][label]["final_accounts"] for label in labels}
    kind, harsh = max(labels, key=lambda x: min(earned[x])), min(labels, key=lambda x: min(earned[x]))
    found: list[Token] = []
    for label, word in ((kind, "best off"), (harsh, "worst off")):
        R, names = earned[label], experiment["arm_labels"]
        low, high = R.index(min(R)), R.index(max(R))
        found += [word, label, R[low], names[low], names[high], R[high] / sum(R)]
    return found


def along_alpha(experiment: Results, series: str) -> list[Token]:
    alphas, values = experiment["alphas"], experiment[series]
    change = values[-1] - values[0]
    steps = [(b - a) * (1 if change >= 0 else -1) for a, b in pairwise(values)]
    back = [step for step in steps if step < 0]
    found: list[Token] = ["rises" if change >= 0 else "falls", values[0], alphas[0], values[-1], alphas[-1]]
    if not back:
        return [*found, "every one", len(steps)]
    return [*found, len(back), len(steps), -min(back), -min(back) / abs(change), alphas[steps.index(min(back))]]


def price(experiment: Results) -> list[Token]:
    alphas, jain, reward = (experiment[name] for name in ("alphas", "jain_index", "average_reward"))
    cost = [1 - each / reward[0] for each in reward]
    found: list[Token] = [alphas[0], alphas[-1], jain[0], jain[-1], reward[0], reward[-1], abs(cost[-1])]
    found.append("less" if cost[-1] >= 0 else "more")
    if jain[-1] <= jain[0]:
        return [*found, "no equality"]
    middle = (jain[0] + jain[-1]) / 2
    half = next(place for place, value in enumerate(jain) if value >= middle)
    return [*found, "half of that equality", alphas[half], cost[half]]


def shares(experiment: Results) -> dict[str, tuple[float, float, float]]:
    """The gap closed, to a millionth."""
    gaps = {label: experiment["contenders"][label]["gap_closed"] for label in ordered(experiment["contenders"])}
    return {label: tuple(round(gap[side], 6) for side in ("mean", "low", "high")) for label, gap in gaps.items()}


def learned(experiments: Results) -> list[Token]:
    found: list[Token] = []
    for key in ("A", "B"):
        gaps = {label: gap for label, gap in shares(experiments[key]).items() if label != "uniform"}
        first = max(gaps, key=lambda label: gaps[label][0])
        mean, low, high = gaps[first]
        said = [mean, 0.95, low, high] if high > low else [mean]
        if mean <= 0:
            found += [f"experiment {key}", "nobody gets beyond", first, "closest", *said]
            continue
        behind = [label for label in gaps if gaps[label][2] < 0]
        found += [f"experiment {key}", first, "farthest", *said]
        found += [token for label in behind for token in (label, gaps[label][0])]
    return found


def floors(experiment: Results) -> list[Token]:
    found: list[Token] = []
    for feedback, seeing in (("full", "all rewards"), ("bandit", "one reward")):
        swept = experiment["fair_cb"][feedback]["alpha_performance"]["mean"]
        best = swept.index(max(swept))
        low, high = experiment["ahead"][feedback]["low"][best], experiment["ahead"][feedback]["high"][best]
        found += [seeing, swept[best], experiment["floors"][best]]
        found += ["the highest tried"] if best == len(swept) - 1 else []
        found.append(experiment["alpha_fair"][feedback]["alpha_performance"]["mean"])
        found.append("above" if low > 0 else "below" if high < 0 else "not told apart")
    return found


def impossibility(experiment: Results) -> list[Token]:
    limits, ratios, halves = (experiment[name] for name in ("limits", "ratios", "halves"))
    away = [max(abs(row[at] - limit) / limit for row, limit in zip(ratios, limits, strict=True)) for at in (-1, 0)]
    rows = zip(ratios, experiment["alphas"], limits, strict=True)
    return [halves[-1], *(x for row, alpha, limit in rows for x in (row[-1], alpha, limit)), *away, halves[0]]


def toy(experiment: Results) -> list[Token]:
    pays, shares = experiment["toy"]["arms"], experiment["toy"]["shares"]
    best, worst = pays.index(max(pays)), pays.index(min(pays))
    return [
        x for label in ordered(experiment["contenders"]) for x in (label, shares[label][best], shares[label][worst])
    ]


def side(lead: float) -> list[Token]:
    return [abs(lead), "above" if lead > 0 else "below"]


def sign(experiment: Results) -> list[Token]:
    scores = ends(experiment, "alpha_performance")
    found: list[Token] = []
    for label, score in scores.items():
        if label != "uniform":
            gap = experiment["contenders"][label]["gap_closed"]
            found += [label, *side(score - scores["uniform"]), "uniform"]
            found += ["do not tell apart"] if gap["low"] <= 0 <= gap["high"] else []
    return [*found, "optimum", experiment["optimum"]["values"][-1] - scores["uniform"]]


def step(experiment: Results) -> list[Token]:
    return [x for label, end in ends(experiment, "standard_regret").items() for x in (label, end)]


def readings(experiment: Results) -> list[Token]:
    def series(word: str, name: str) -> np.ndarray:
        return np.array(experiment["contenders"][word][name]["mean"])

    words, found = {"next_visit": "next visit", "after": "after"}, []
    names = {"alpha_performance": "\u03b1-performance", "jain_index": "jain's index"}
    for word, said in words.items():
        ours, theirs = (series(each, "alpha_performance")[-1] for each in ("before", word))
        found += [(theirs - ours) / ours, said]
    sizes = {
        (word, name): float(np.max(np.abs(series(word, name) / series("before", name) - 1)))
        for word in words
        for name in names
    }
    word, name = max(sizes, key=lambda each: sizes[each])
    return [*found, sizes[word, name], words[word], names[name]]


def changes(results: Results) -> list[list[Token]]:
    """What every correction changes, row by row."""
    experiments = results["experiments"]
    a, signs, sweep = (experiments[key] for key in ("A", "sign", "floor_sweep"))

    def score(key: str, policy: str, feedback: str, series: str = "alpha_performance") -> float:
        found = experiments[key]["contenders"].values()
        (last,) = [x[series]["mean"][-1] for x in found if (x["policy"], x["feedback"]) == (policy, feedback)]
        return float(last)

    pays, shares = signs["toy"]["arms"], signs["toy"]["shares"]
    ours, theirs = "\u03b1-FairCB (bandit)", "published sign"
    worst = {label: shares[label][pays.index(min(pays))] for label in (theirs, ours)}
    leads = {
        label: end - ends(signs, "alpha_performance")["uniform"]
        for label, end in ends(signs, "alpha_performance").items()
    }
    place = max(at for at, floor in enumerate(sweep["floors"]) if floor <= 0.98)
    swept = sweep["fair_cb"]["bandit"]["alpha_performance"]["mean"][place]
    fair = "\u03b1-FairCB"
    return [
        [len(pays), worst[theirs], worst[ours], *side(leads[theirs]), *side(leads[ours])],
        [
            score("step", "published-step", "full", "standard_regret"),
            score("step", "alpha-fair", "full", "standard_regret"),
        ],
        [experiments["readings"]["contenders"][word]["alpha_performance"]["mean"][-1] for word in ("after", "before")],
        [a["optimum"]["gaps"][-1]],
        [
            *(0.001, *(experiments[key]["contenders"][fair]["gap_closed"]["mean"] for key in ("delta", "A"))),
            *(swept, sweep["floors"][place], score("A", "fair-cb", "bandit")),
        ],
        [score("A", "fair-cb", "bandit"), score("A", "fair-cb", "full")],
        [],
        [
            *(sweep["floors"][place], len(sweep["seeds"]), sweep["maxima"][place], swept),
            *(ours, sweep["alpha_fair"]["bandit"]["alpha_performance"]["mean"]),
        ],
    ]


def arena(meetings: list[Results]) -> list[Token]:
    """How often the first contender closes most, and who does elsewhere, in the order of the courses."""
    ours = meetings[0]["scores"][0]["label"]
    winners = [max(each["scores"], key=lambda score: float(score["gap_closed"]["mean"]))["label"] for each in meetings]
    others = list(dict.fromkeys(label for label in winners if label != ours))
    return [ours, winners.count(ours), len(meetings), *others]


def captions(results: Results) -> dict[str, list[Token]]:
    """Of every picture."""
    experiments = results["experiments"]
    found = {
        f"{key}-{name}": tokens(experiments[key])
        for key in ("A", "B")
        for name, tokens in (
            ("alpha-performance", performance),
            ("approximate-regret", approximate),
            ("jain-index", jain),
            ("standard-regret", regret),
            ("who-gets-what", who),
        )
    }
    return found | {
        "C-jain-index": along_alpha(experiments["C"], "jain_index"),
        "C-average-reward": along_alpha(experiments["C"], "average_reward"),
        "price-of-fairness": price(experiments["C"]),
        "how-much-was-learned": learned(experiments),
        "floor-sweep": floors(experiments["floor_sweep"]),
        "sign-toy": toy(experiments["sign"]),
        "sign-ratings": sign(experiments["sign"]),
        "step": step(experiments["step"]),
        "readings": readings(experiments["readings"]),
        "impossibility": impossibility(experiments["impossibility"]),
        "gap-closed": arena(experiments["arena"]),
    }


def numbers(experiment: Results) -> Iterator[list[Token]]:
    """The rows of the table of all ends: a mean, and half of its band where it has one."""
    for label in ordered(experiment["contenders"]):
        contender = experiment["contenders"][label]
        n_seeds = contender["n_seeds"]
        row: list[Token] = [label, *([n_seeds] if n_seeds > 1 else [])]
        for series in ("alpha_performance", "ratio", *LOWER, "jain_index", "average_reward"):
            mean, low, high = (contender[series][side][-1] for side in ("mean", "low", "high"))
            row += [mean, *spread(mean, low, high)]
            row += [contender["certificates"][series]] if series in contender.get("certificates", ()) else []
        mean, low, high = shares(experiment)[label]
        yield [*row, mean, *([100 * (high - low) / 2] if high > low else [])]
    best = experiment["optimum"]["values"][-1]
    yield ["optimum", best, 1.0, 0.0, (1 - factor(experiment["alpha"])) * best, 1.0]


def tiles(results: Results) -> Iterator[list[Token]]:
    """A number and its text are read as one."""
    a, b, c, sign = (results["experiments"][key] for key in ("A", "B", "C", "sign"))
    counted = [claim["verdict"] for claim in results["claims"] if claim["source"] == "paper" and claim["independent"]]
    others = [(word, counted.count(word)) for word in ("does not hold", "not decided")]
    yield [counted.count("holds"), len(counted), *(token for pair in others if pair[1] for token in pair)]
    ours = "\u03b1-FairCB"
    yield [shares(a)[ours][0], ours, "all rewards"]
    yield [a["contenders"][ours]["ratio"]["mean"][-1], ours, a["n_rounds"], 1.0, factor(a["alpha"]), "in the long run"]
    mean, low, high = shares(b)[f"{ours} (bandit)"]
    yield [mean, f"{ours} (bandit)", 0.95, low, high, len(b["seeds"])]
    cost = c["average_reward"][-1] / c["average_reward"][0] - 1
    ends = (c["jain_index"][0], c["jain_index"][-1], c["alphas"][0], c["alphas"][-1])
    yield [*ends, abs(cost), "less" if cost < 0 else "more"]
    toy = sign["toy"]
    worst = toy["arms"].index(min(toy["arms"]))
    yield [toy["shares"]["published sign"][worst], len(toy["arms"]), toy["shares"][f"{ours} (bandit)"][worst]]

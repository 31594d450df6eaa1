"""The report's page: results in, HTML out, section by section; the pictures come ready as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from alphafair import metrics
from alphafair.experiments import paper
from alphafair.experiments.claims import FAILS, HOLDS, OPEN
from alphafair.experiments.errata import changes
from alphafair.experiments.headlines import headlines
from alphafair.experiments.pictures import Picture, Results
from alphafair.experiments.pictures.canvas import certificate, number, ordered, rounded
from alphafair.experiments.pictures.learned import share
from alphafair.figures import ALPHA, look

DASH = "\N{EN DASH}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


class Section(NamedTuple):
    """A part of the page: the experiments it needs, and what was done, in words that hold whatever came out."""

    name: str
    title: str
    needs: tuple[str, ...]
    words: str


SECTIONS = (
    Section(
        "A",
        "A: Full information",
        ("A",),
        "After every decision a policy sees what each arm would have paid, and rewards are booked as expected: there "
        "is nothing random to repeat. FairCB was published for bandit feedback only, so it runs twice: as published, "
        "with a band, and in a variant of ours that sees all rewards.",
    ),
    Section(
        "B",
        "B: Bandit feedback",
        ("B",),
        "Now a policy sees only what the arm it chose has paid. Everything here is random, so every curve is a mean "
        "over seeds with its 95% confidence band.",
    ),
    Section(
        "C",
        f"C: From efficiency to equality, over {ALPHA}",
        ("C",),
        f"The same full-information policy on users with many ratings, once for every value of {ALPHA}.",
    ),
    Section(
        "price",
        "The price of fairness",
        ("C",),
        f"The two curves of experiment C against each other: what a step toward equality costs, along {ALPHA}.",
    ),
    Section(
        "learned",
        "How much was learned",
        ("A", "B"),
        f"At the paper's {ALPHA} the scale of the objective flatters everybody, uniform play included. So this is the "
        "plain question: of what separates uniform play from the best fixed policy in hindsight, how much does a "
        "policy win? In B uniform play is drawn with the same seeds, as all others are. In A it is booked as expected, "
        "which costs FairCB as published, which is drawn there too, a little: the utility is concave.",
    ),
    Section(
        "corrections",
        "What the corrections change",
        ("sign", "step", "readings"),
        "The code published with the paper differs from its text, and the text does not say at which moment the slope "
        "of the utility is taken. Here is every difference, and what it changes.",
    ),
    Section(
        "rivals",
        "A floor on pulls, and a limit for everybody",
        ("floor_sweep", "impossibility"),
        "FairCB is fair by a floor on how often an arm is pulled, which somebody must choose. And on one instance no "
        "online policy can keep up with the optimum, however it plays.",
    ),
)
VERDICTS = {  # class, mark
    HOLDS: ("holds", "\N{CHECK MARK}"),
    FAILS: ("fails", "\N{BALLOT X}"),
    OPEN: ("open", "?"),
}
HOW_DECIDED = (
    "Policies are compared seed by seed on the same draws, with a confidence interval of the mean difference; all "
    "intervals of a claim hold together with 95% (Bonferroni). A claim holds if all of its intervals lie on its side, "
    "does not hold if one lies on the other, and is not decided if one reaches to both: then more seeds are needed. "
    "Where nothing is random the comparison is exact. A policy that is played with fewer seeds in one experiment than "
    "in another has another mean there.",
    "Claims of the paper are about these ratings; what a theorem says must hold on any; whether anything was learned "
    "shows against uniform play. The headline counts the paper's claims, without those that are another one again.",
)


def html(results: Results, pictures: Sequence[Picture], drawings: Mapping[str, str]) -> str:
    """The whole page. `drawings` are the pictures by name, as inline SVG."""
    shown = [section for section in SECTIONS if any(key in results["experiments"] for key in section.needs)]
    style = (files("alphafair.experiments") / "report.css").read_text(encoding="utf-8")
    contents = [("headlines", "Headlines"), ("claims", "The claims")]
    contents += [(section.name, section.title) for section in shown] + [("origin", "Where it comes from")]
    links = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in contents)
    numbers = {picture.name: place for place, picture in enumerate(pictures, start=1)}
    body = [_head(results), _claims(results["claims"], results["data"]["name"])]
    for section in shown:
        figures = [
            _figure(picture, numbers[picture.name], picture.sentence(results), drawings[picture.name])
            for picture in pictures
            if picture.section == section.name
        ]
        body.append(_section(section.name, section.title, [_words(section, results), *figures]))
    body.append(_origin(results))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{ALPHA}-fair contextual bandits, reproduced</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<div class="page">\n<nav aria-label="Contents"><ol>{links}</ol></nav>\n<main>\n{"".join(body)}</main>\n'
        "</div>\n</body>\n</html>\n"
    )


def _section(name: str, title: str, parts: Iterable[str]) -> str:
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{"".join(parts)}</section>\n'


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>\n' if kind else f"<p>{escape(text)}</p>\n"


def _table(titles: Sequence[str], rows: Sequence[str], caption: str = "", numeric: Sequence[int] = ()) -> str:
    cells = "".join(
        f'<th scope="col"{_n(place in numeric)}>{_title(title, place in numeric)}</th>'
        for place, title in enumerate(titles)
    )
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = f"<thead><tr>{cells}</tr></thead>"
    return f'<div class="scroll"><table>{above}{head}\n<tbody>\n{"".join(rows)}</tbody></table></div>\n'


def _title(title: str, numeric: bool) -> str:
    """Narrow columns have their titles on two lines."""
    return escape(title).replace(" ", "<br>") if numeric else escape(title)


def _n(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def _row(cells: Sequence[str], numeric: Sequence[int] = (), kind: str = "") -> str:
    """A row of cells that are HTML already; the first is its head."""
    rest = "".join(f"<td{_n(place in numeric)}>{cell}</td>" for place, cell in enumerate(cells[1:], start=1))
    return f'<tr{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}><th scope="row">{cells[0]}</th>{rest}</tr>\n'


def _figure(picture: Picture, place: int, sentence: str, drawing: str) -> str:
    links = " ".join(f'<a href="figures/{picture.name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "pdf"))
    return (
        f'<figure id="{picture.name}">\n{drawing}\n<figcaption><b>Figure {place}.</b> {escape(sentence)} '
        f'<span class="files">{links}</span></figcaption>\n</figure>\n'
    )


def _head(results: Results) -> str:
    data = results["data"]
    tiles = "".join(
        f"<li><b>{escape(value)}</b><span>{escape(text)}</span></li>\n" for value, text in headlines(results)
    )
    lead = (
        f"The experiments of {ALPHA}-Fair Contextual Bandits (Chaudhary and Sinha, arXiv 2310.14164) on "
        f"{data['name']}, with what each of its claims comes to."
    )
    notice = (
        f"These numbers are not from the paper's data: {data['name']} stands in for MovieLens 25M, which may not be "
        "redistributed; alphafair data get 25m fetches it."
    )
    return (
        f'<header id="headlines">\n<h1>{ALPHA}-fair contextual bandits, reproduced</h1>\n{_paragraph(lead, "lead")}'
        f'{_paragraph(notice, "notice") if data["stand_in"] else ""}<ul class="tiles">\n{tiles}</ul>\n</header>\n'
    )


def _claims(claims: Sequence[Mapping[str, Any]], data: str) -> str:
    rows = []
    for claim in claims:
        kind, mark = VERDICTS[claim["verdict"]]
        cells = [str(claim[key]) for key in ("id", "claim", "measured")]
        verdict = f'<span class="verdict {kind}">{mark} {claim["verdict"]}</span>'
        source = claim["source"] + ("" if claim["independent"] else ", not counted")
        source += "" if claim["data"] == data else f"; instance {claim['data']}"
        rows.append(_row([*map(escape, cells), verdict, escape(source)]))
    table = _table(("", "claim", "measured", "verdict", "source"), rows)
    return _section("claims", "The claims", [*map(_paragraph, HOW_DECIDED), f'<div class="claims">{table}</div>'])


def _words(section: Section, results: Results) -> str:
    """What was done, for A and B all final numbers in a table, and what every correction changes in another."""
    experiments = results["experiments"]
    text = _paragraph(section.words)
    if section.name == "C":
        text += _paragraph(*_users(experiments["C"]))
    if section.name == "corrections":
        rows = [_row([*map(escape, cells)]) for cells in changes(experiments)]
        text += _table(("what", "published code", "here", "what it changes"), rows)
    if section.name in ("A", "B"):
        text += _numbers(experiments[section.name])
    return text


def _users(experiment: Results) -> tuple[str, str]:
    """Who was played in C, and whether it is a notice: the paper's threshold may be too high for the data."""
    least, asked = experiment["settings"]["min_ratings"], paper.PRICE_OF_FAIRNESS.min_ratings
    who = "all users" if least is None else f"users with at least {least:,} ratings"
    text = f"Here: {who}, {experiment['n_contexts']:,} of them, {experiment['n_rounds']:,} rounds."
    return (text, "") if least == asked else (f"{text} They stand in for the paper's users with {asked:,}.", "notice")


def _numbers(experiment: Results) -> str:
    """Where everybody ends: the pictures' last points as text."""
    columns = {
        "alpha_performance": (f"{ALPHA}-performance", 4),
        "ratio": ("OPT/ALG", 5),
        "standard_regret": ("standard regret", 3),
        "approximate_regret": ("approximate regret", 4),
        "jain_index": ("Jain's index", 3),
        "average_reward": ("average reward", 4),
    }
    head = ["", *(title for title, _ in columns.values()), "gap closed"]
    numeric = range(1, len(head))
    rows = []
    for label, contender in ordered(experiment["contenders"]).items():
        key = f'<span class="key" style="background:{look(str(contender["policy"])).colour}"></span>{escape(label)}'
        if contender["n_seeds"] > 1:
            key += f"<small>mean of {contender['n_seeds']:,} seeds</small>"
        cells = []
        for name, (_, digits) in columns.items():
            mean, low, high = (contender[name][side][-1] for side in ("mean", "low", "high"))
            cells.append(_value(mean, low, high, digits))
        mean, low, high = share(contender)
        cells.append(_value(mean, low, high, 3, "%"))
        rows.append(_row([key, *cells], numeric))
    best = float(experiment["optimum"]["values"][-1])
    factor = metrics.approximation_factor(float(experiment["alpha"]))
    cells = [number(best), "1", "0", number((1.0 - factor) * best), DASH, DASH, "100%"]
    rows.append(_row(["optimum", *cells], numeric, "optimum"))
    caption = (
        f"After {experiment['n_rounds']:,} rounds, {ALPHA} = {experiment['alpha']:g}; {PLUS_MINUS} is half of a 95% "
        f"confidence band. The optimum in hindsight is certified to within {number(certificate(experiment), 2)}."
    )
    return f'<div class="numbers">{_table(head, rows, caption, numeric)}</div>'


def _value(mean: float, low: float, high: float, digits: int, unit: str = "") -> str:
    value, half = rounded(float(mean), float(low), float(high), digits, unit)
    return f"{value} <small>{PLUS_MINUS} {half}</small>" if half else value


def _origin(results: Results) -> str:
    """Data, versions, seeds, digests, and the command that makes it again."""
    data, experiments = results["data"], results["experiments"]
    facts = [("data", data["name"]), ("digest of the data", data["digest"])]
    facts += [("about the data", data["note"])] if data["note"] else []
    facts += [("versions", ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items())))]
    rows = [_row([escape(name), escape(str(value))]) for name, value in facts]
    runs = []
    toys = {"toy": experiments["sign"]["toy"]} if "sign" in experiments else {}
    for key, run in [*sorted(experiments.items()), *toys.items()]:
        sizes = [f"{run[size]:,}" if size in run else DASH for size in ("n_rounds", "n_contexts", "n_arms")]
        settings = _settings(run.get("settings", {}))
        cells = [escape(key), escape(str(run["title"])), f"<code>{escape(run['digest'])}</code>"]
        runs.append(_row([*cells, *sizes, _seeds(run["seeds"]), settings], (3, 4, 5, 6)))
    policies = [
        _row(
            [
                escape(key),
                escape(label),
                f"<code>{escape(contender['policy'])}</code>",
                _settings(contender["settings"]),
            ]
        )
        for key in ("A", "B")
        if key in experiments
        for label, contender in ordered(experiments[key]["contenders"]).items()
    ]
    parts = [
        _paragraph("This page is made by one command; the same command on the same versions gives the same bytes:"),
        f"<pre><code>{escape(results['command'])}</code></pre>\n",
        '<p>Every number is in <a href="results.json">results.json</a>, every picture in three formats in '
        "<code>figures/</code>.</p>\n",
        _table(("what", "which"), rows),
        _table(
            ("", "experiment", "digest", "rounds", "contexts", "arms", "seeds", "settings"),
            runs,
            "Experiments",
            (3, 4, 5, 6),
        ),
        _table(
            ("", "policy", "name in the library", "settings"), policies, "Policies; what is not named is the default"
        ),
    ]
    return _section("origin", "Where it comes from", parts)


def _seeds(seeds: Sequence[int]) -> str:
    """Which: they are numbered without gaps."""
    return f"{seeds[0]}{DASH}{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _settings(settings: Mapping[str, Any]) -> str:
    """Settings as they were given; those that are None say nothing."""
    given = {key: value for key, value in sorted(settings.items()) if value is not None}
    words = [f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items()]
    return escape(", ".join(words)) or DASH

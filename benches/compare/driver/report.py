"""What came of it, as text that is Markdown too."""

from bounds import LEAST_ROUNDS, SURE, judge, known, lower, middle, rank, ratios, upper
from figures import BASE
from rounds import DIRECT

UNKNOWN = "-"


def number(value, digits):
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def table(head, rows):
    rows = [head, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def interval(values):
    """Median, smallest to largest, and what the median is at most."""
    if not values:
        return UNKNOWN
    return f"{middle(values):.2f} ({min(values):.2f} to {max(values):.2f}), ≤ {upper(values):.2f}"


class Report:
    def __init__(self, figures, peers, samples):
        """samples: for each round, for each name, figures by key."""
        self.figures, self.peers, self.samples = figures, peers, samples
        self.names = [peer.name for peer in peers]
        self.ours = [peer.name for peer in peers if peer.kvgauge]

    def values(self, name, key):
        return [each.get(name, {}).get(key) for each in self.samples]

    def ratios(self, name, rival, key):
        return ratios(self.values(name, key), self.values(rival, key))

    def medians(self):
        rows = [
            [figure.title, *(number(middle(self.values(name, figure.key)), figure.digits) for name in self.names)]
            for figure in self.figures
        ]
        return table(["median of the rounds", *self.names], rows)

    def beside(self, base, names):
        rows = [
            [figure.title, *(interval(self.ratios(name, base, figure.key)) for name in names)]
            for figure in self.figures
            if not figure.shown_only
        ]
        return table([f"ratio to {base}", *names], rows)

    def judged(self):
        """(kvgauge's name, figure, rival, limit, values, verdict) for each goal that can be looked at."""
        for name in self.ours:
            for figure in self.figures:
                for rival, limit in figure.goals:
                    if rival is None:
                        values = known(self.values(name, figure.key))
                    elif rival in self.names:
                        values = self.ratios(name, rival, figure.key)
                    else:
                        continue
                    yield name, figure, rival, limit, values, judge(values, limit)

    def goals(self):
        rows = []
        for name, figure, rival, limit, values, verdict in self.judged():
            shown = [UNKNOWN] * 3
            if values:
                shown = [f"{middle(values):.2f}", f"{min(values):.2f} to {max(values):.2f}", f"{upper(values):.2f}"]
            goal = f"≤ {limit:.2f}" + (f" of {rival}" if rival else "")
            rows.append([figure.title if len(self.ours) == 1 else f"{name}: {figure.title}", goal, *shown, verdict])
        return table(["kvgauge", "goal", "median", "rounds", "at most", "verdict"], rows)

    def builds(self):
        """Two builds of kvgauge, the second against the first."""
        first, second = self.ours
        rows = []
        for figure in self.figures:
            values = self.ratios(second, first, figure.key)
            if figure.shown_only or not values:
                continue
            verdict = "no difference resolved"
            if len(values) >= LEAST_ROUNDS and upper(values) < 1:
                verdict = "less"
            elif len(values) >= LEAST_ROUNDS and lower(values) > 1:
                verdict = "more"
            spread = f"{min(values):.3f} to {max(values):.3f}"
            sure = f"{lower(values):.3f} to {upper(values):.3f}"
            rows.append([figure.title, f"{middle(values):.3f}", spread, sure, verdict])
        return table([f"{second}, ratio to {first}", "median", "rounds", "at least, at most", "verdict"], rows)

    def certainty(self):
        rounds = len(self.samples)
        place, sure = rank(rounds)
        text = (
            "Ratios are of one round; shown are their median, (smallest to largest), and what the true median is at most. "
            "That bound supposes nothing of how rounds are distributed (it is the sign test's): "
        )
        if rounds < LEAST_ROUNDS:
            return text + (
                f"with {rounds} round{'s' * (rounds > 1)} it is the largest of them, which is {sure:.0%} sure; "
                f"a verdict takes {SURE:.0%}, that is {LEAST_ROUNDS} rounds."
            )
        which = "the largest" if place == rounds else f"number {place}, from below,"
        return text + (
            f"of {rounds} rounds it is {which} and {sure:.1%} sure. A goal holds where the bound is within it, does not hold "
            f"where the bound from below is beyond it, and is not resolved between them. 99th percentiles are not judged."
        )

    def text(self, about, busy):
        parts = [about, self.medians()]
        if BASE in self.names and len(self.names) > 1:
            parts.append(self.beside(BASE, [name for name in self.names if name != BASE]))
        if any(True for _ in self.judged()):
            parts.append(self.goals())
        if len(self.ours) == 2:
            parts.append(self.builds())
        parts += [self.certainty(), busy]
        return "\n\n".join(parts) + "\n"

    def data(self):
        """The same for programs."""
        verdicts = [
            {"build": name, "figure": figure.key, "against": rival, "goal": limit, "values": values, "verdict": verdict}
            for name, figure, rival, limit, values, verdict in self.judged()
        ]
        medians = {
            name: {figure.key: middle(self.values(name, figure.key)) for figure in self.figures} for name in self.names
        }
        return {"medians": medians, "verdicts": verdicts, "rounds": self.samples, "direct": DIRECT}

"""What the report makes of numbers."""

import unittest

from bounds import judge, lower, rank, ratios, upper
from figures import FIGURES, chosen
from peers import Peer
from report import Report
from rounds import Rounds, Wrong, subtract_direct


class Bounds(unittest.TestCase):
    def test_the_rank_is_the_least_that_is_sure(self):
        self.assertEqual([rank(n)[0] for n in (1, 4, 5, 7, 8, 10, 11, 20)], [1, 4, 5, 7, 7, 9, 9, 15])
        self.assertAlmostEqual(rank(5)[1], 31 / 32)
        self.assertAlmostEqual(rank(8)[1], 247 / 256)
        self.assertAlmostEqual(rank(4)[1], 15 / 16)

    def test_bounds_lie_at_both_ends_of_few_rounds(self):
        values = [0.9, 0.8, 1.0, 0.7, 0.95, 0.85, 0.88, 0.99]
        self.assertEqual((lower(values), upper(values)), (0.8, 0.99))
        self.assertEqual((lower(values[:5]), upper(values[:5])), (0.7, 1.0))

    def test_a_goal_that_the_bounds_straddle_is_not_resolved(self):
        values = [0.90, 0.91, 0.92, 0.93, 0.96]
        self.assertEqual(judge(values, 0.96), "holds")
        self.assertEqual(judge(values, 0.95), "not resolved by this run")
        self.assertEqual(judge(values, 0.89), "does not hold")
        self.assertEqual(judge(values[:4], 2.0), "not resolved by this run")

    def test_unknown_and_nothing_are_no_ratios(self):
        self.assertEqual(ratios([1.0, None, 3.0, 4.0], [2.0, 2.0, 0.0, -1.0]), [0.5])


class Reports(unittest.TestCase):
    def test_goals_verdicts_and_builds(self):
        peers = [
            Peer("old", "", [], list, kvgauge=True),
            Peer("new", "", [], list, kvgauge=True),
            Peer("nginx", "", [], list),
        ]
        samples = [
            {"old": {"request": 10.0, "rest": 9.0}, "new": {"request": 9.0, "rest": 7.0}, "nginx": {"request": 9.9 + n / 100}}
            for n in range(5)
        ]
        report = Report(chosen(["request", "rest"]), peers, samples)
        verdicts = [(name, figure.key, rival, verdict) for name, figure, rival, _, _, verdict in report.judged()]
        self.assertEqual(
            verdicts,
            [
                ("old", "request", "nginx", "does not hold"),
                ("old", "rest", None, "does not hold"),
                ("new", "request", "nginx", "holds"),
                ("new", "rest", None, "holds"),
            ],
        )
        text = report.text("about", "busy")
        self.assertIn("| CPU a request, µs (32 connections)                  | 10.0 | 9.0 | 9.9   |", text)
        self.assertIn("| resident memory at rest, MiB (after 2,000 requests) | 9.0  | 7.0 | -     |", text)
        self.assertRegex(text, r"CPU a request.*\| 0\.900  \| 0\.900 to 0\.900 \| 0\.900 to 0\.900 +\| less")
        self.assertEqual(report.data()["medians"]["nginx"], {"request": 9.92, "rest": None})

    def test_a_percentile_comes_with_its_figure_and_is_not_judged(self):
        self.assertEqual([figure.key for figure in chosen(["delay"])], ["delay", "delay_p99"])
        self.assertTrue(all(not figure.goals for figure in FIGURES if figure.shown_only))

    def test_delays_are_what_a_proxy_adds(self):
        samples = {"direct": {"delay": 40.0}, "nginx": {"delay": 150.0, "request": 9.0}}
        subtract_direct(samples)
        self.assertEqual(samples["nginx"], {"delay": 110.0, "request": 9.0})

    def test_one_wrong_answer_ends_the_run(self):
        class Altered:
            def ask(self, *_, **__):
                return [{"right": 5, "wrong": 0, "why": ""}, {"right": 4, "wrong": 1, "why": "1 times: cut short"}]

        rounds = Rounds(Altered(), [], [], None, None)
        with self.assertRaisesRegex(Wrong, "nginx: 1 of 5 answers to 'turns' were wrong: 1 times: cut short"):
            rounds.ask("nginx", "turns")


if __name__ == "__main__":
    unittest.main()

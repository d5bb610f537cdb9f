# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of schedules: lathe plan ring_schedule --svg and --picture; and the demo over ranks, which shows one."""
import json
import re
import xml.etree.ElementTree as xml

import harness

SPACE = "{http://www.w3.org/2000/svg}"


class PictureCases(harness.Case):
    def plan(self, cases, *more):
        self.asked, self.answered, self.svg = (self.folder / name for name in ("in.json", "out.json", "out.svg"))
        self.asked.write_text(json.dumps({"cases": cases}))
        return self.lathe("plan", "ring_schedule", "--input", str(self.asked), "--output", str(self.answered), *more)

    def work_of(self, case):
        """Blocks of rows x keys by rank, from the schedule that the program answers."""
        work = [0] * case["world_size"]
        for step in case["steps"]:
            parts = [{None: 0, "lo": .5, "hi": .5, "all": 1}[step[side]] for side in ("q", "kv")]
            work[step["rank"]] += parts[0] * parts[1] * (.5 if step["mask"] == "causal" else 1)
        return work

    def test_svg(self):
        cases = [{"world_size": world, "causal": causal, "balance": balance} for world in (1, 2, 4, 8)
                 for causal in (0, 1) for balance in ("none", "head_tail")]
        status, out, err = self.plan(cases, "--svg", str(self.folder / "out.svg"))
        self.assertEqual((status, out), (0, ""), err)
        root = xml.parse(self.svg).getroot()
        self.assertEqual(root.tag, SPACE + "svg")
        width, height = float(root.get("width")), float(root.get("height"))
        cells = root.findall(SPACE + "g")
        self.assertEqual(len(cells), sum(c["world_size"] ** 2 for c in cases))
        answers = json.loads(self.answered.read_text())["cases"]
        sends = sum(step["keys_sent_to"] is not None for answer in answers for step in answer["steps"])
        # Keys go round, but where the ranks behind see nothing of them.
        rings = [c["world_size"] * (c["world_size"] - 1) // (2 if c["causal"] and c["balance"] == "none" else 1) for c in cases]
        self.assertEqual(sends, sum(rings))
        arrows = [p for p in root.iter(SPACE + "path") if p.get("class") == "arrow"]
        self.assertEqual(len(arrows), sends)
        for rect in root.iter(SPACE + "rect"):
            self.assertLessEqual(float(rect.get("x")) + float(rect.get("width")), width)
            self.assertLessEqual(float(rect.get("y")) + float(rect.get("height")), height)
        # What is filled is what is computed: of a cell of side 48, in the order of the answer's steps.
        areas = []
        for cell in cells:
            area = 0
            for rect in cell.findall(SPACE + "rect"):
                if rect.get("fill"):
                    area += float(rect.get("width")) * float(rect.get("height")) / 48 ** 2
            for path in cell.findall(SPACE + "path"):
                if path.get("fill"):
                    self.assertRegex(path.get("d"), r"^M[\d.]+ [\d.]+ v48 h48 z$")
                    area += .5
            areas.append(area)
        for case, answer in zip(cases, answers):
            world = case["world_size"]
            mine, areas = areas[:world * world], areas[world * world:]
            work = self.work_of({**case, **answer})
            for rank in range(world):
                self.assertAlmostEqual(sum(mine[rank * world:(rank + 1) * world]), work[rank])
        text = self.svg.read_text()
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertNotRegex(text, r"https?://(?!www\.w3\.org/2000/svg)")

    def test_picture(self):
        case = {"world_size": 4, "causal": 1, "balance": "none"}
        status, out, err = self.plan([case], "--picture")
        self.assertEqual(status, 0, err)
        answer = json.loads(self.answered.read_text())["cases"][0]
        shown = [float(re.search(r"(\d+\.\d) +\d$", line)[1]) for line in out.splitlines() if line.startswith("  rank")]
        self.assertEqual(shown, self.work_of({**case, **answer}))
        self.assertIn("  rank 2  ▙ 2      █ 1      █ 0      · 3", out)
        # What a rank sends on: its own keys, and those of the ranks before it.
        self.assertEqual([line[-1] for line in out.splitlines() if line.startswith("  rank")], ["1", "2", "3", "0"])
        self.assertIn("175.0 % of the mean", out)

    def test_pieces(self):
        """Runs of one sequence on one rank, by counting tokens; a bar for each, and a line from each to the next."""
        table = [[[0, 3], [9, 12]], [[3, 5], [7, 9]], [], [[5, 7], [12, 20]]]
        cases = [{"world_size": 4, "cu_seqlens": [0, 4, 4, 20], "ranges": table},
                 {"world_size": 2, "cu_seqlens": [0, 20], "balance": "head_tail"},
                 {"world_size": 2, "cu_seqlens": [0, 20], "ranges": [[[0, 10]], [[11, 20]]]}]
        asked, answered, svg = (self.folder / name for name in ("in.json", "out.json", "out.svg"))
        asked.write_text(json.dumps({"cases": cases}))
        status, _, err = self.lathe("plan", "pieces", "--input", str(asked), "--output", str(answered), "--svg", str(svg))
        self.assertEqual(status, 0, err)
        answers = json.loads(answered.read_text())["cases"]
        self.assertIn("token 10 lies in no range of any rank", answers.pop()["error"])
        chains = 0
        for case, answer, ranges in zip(cases, answers, (table, [[[0, 5], [15, 20]], [[5, 15]]])):
            owner = {t: rank for rank, own in enumerate(ranges) for first, last in own for t in range(first, last)}
            cu, expected = case["cu_seqlens"], set()
            for n in range(len(cu) - 1):
                starts = [t for t in range(cu[n], cu[n + 1]) if t == cu[n] or owner[t] != owner[t - 1]]
                for i, t in enumerate(starts):
                    expected.add((owner[t], n, t, (starts + [cu[n + 1]])[i + 1], i))
                chains += max(len(starts) - 1, 0)
            found = {(p["rank"], p["sequence"], *p["interval"], p["position"]) for p in answer["pieces"]}
            self.assertEqual({p for p in found if p[2] < p[3]}, expected)
            for message in answer["messages"]:  # a state goes to who has a later piece, a gradient to who has an earlier one
                ranks = {"state": [p[0] for p in expected if p[1] == message["sequence"] and p[2] >= message["interval"][1]],
                         "gradient": [p[0] for p in expected if p[1] == message["sequence"] and p[3] <= message["interval"][0]]}
                self.assertIn(message["to"], ranks.get(message["what"], ranks["state"] + ranks["gradient"]))
        root = xml.parse(svg).getroot()
        bars = [rect for rect in root.iter(SPACE + "rect") if rect.get("fill")]
        self.assertEqual(len(bars), sum(p["interval"][0] < p["interval"][1] for a in answers for p in a["pieces"]))
        arrows = [p for p in root.iter(SPACE + "path") if p.get("class") == "arrow"]
        self.assertEqual(len(arrows), chains)
        for rect in root.iter(SPACE + "rect"):
            self.assertLessEqual(float(rect.get("x")) + float(rect.get("width")), float(root.get("width")) + 1e-6)
            self.assertLessEqual(float(rect.get("y")) + float(rect.get("height")), float(root.get("height")))

    def test_refused(self):
        status, _, err = self.plan([{"world_size": 0, "causal": 1, "balance": "none"}], "--picture")
        self.assertEqual(status, 2)
        self.assertIn("no case", err)
        status, _, err = self.lathe("plan", "merge", "--input", str(self.asked), "--output", str(self.answered),
                                    "--svg", str(self.svg))
        self.assertEqual(status, 2)
        self.assertIn("merge", err)
        self.assertFalse(self.svg.exists())

    def test_demo_over_ranks(self):
        status, out, err = self.lathe("demo", "--device", "sim", "--ranks", "3", "--json")
        self.assertEqual(status, 0, err + out)
        report = json.loads(out)
        self.assertTrue(report["ok"])
        kda, attention = report["layers"]
        self.assertEqual(set(attention["errors"]), {"out", "lse", "dq", "dk", "dv"})
        self.assertEqual(set(kda["errors"]), {"o", "final_state", "dg", "dbeta",
                                              *(f"{name} of {of}" for name in ("dx", "dweight") for of in "qkv")})
        for layer in report["layers"]:
            for name, error in layer["errors"].items():
                self.assertLessEqual(error, 8e-3, name)
        # A ring's forward and backward: W - 1 and W + 1 groups, W - 1 and W - 1 + W hops of them beside the sums in float32.
        world, tokens, row = 3, 3 * 96 + 7, 2 * 64 * 2
        stage, = attention["stages"]
        self.assertEqual(stage["groups"], 2 * world)
        most = -(-tokens // world) * row * 2  # keys and values
        self.assertLessEqual(stage["bytes_sent"], most * (2 * (world - 1) + 2 * world))
        self.assertGreater(stage["bytes_sent"], most * (2 * (world - 1) + 2 * world) * .97)
        status, out, err = self.lathe("demo", "--device", "sim", "--ranks", "2")
        self.assertEqual(status, 0, err + out)
        self.assertIn("  rank 1  ▙ 1      ▌ 0", out)
        self.assertIn("2 ranks give what one rank gives", out)
        for bad in ("0", "9", "two"):
            self.assertEqual(self.lathe("demo", "--device", "sim", "--ranks", bad)[0], 2)

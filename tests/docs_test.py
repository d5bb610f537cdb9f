#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""README and docs/ say what is: docs_test.py SOURCE BUILD

Each document names folders, files, sections, scripts, verbs and flags that exist, and its C is that of the
programs in examples/, word for word. Its Python is where python/tests/snippets.py finds it, so that a test runs it.
A comment of a source cites files that are in the tree.
README is short, and docs/c.md shows examples/conv1d.c whole. The generated documents are what scripts/docs writes, and
figures of a GPU what scripts/plots makes of bench/results. BUILD has bin/lathe and lib/liblathe.so.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python/tests"))
import snippets

README_LINES = 250
COLUMNS = 140
GENERATED = ("environment.md", "operators.md", "python.md")  # rows of their tables are as long as they must be
# Comments may cite these, which are not in the tree: other projects' files, and words that stand for a file's name.
FOREIGN = {"cuda.h", "lz4_Block_format.md", "docs/mixed_kv_page_transport_backends.md", "benchmarks/microbench/sm90_rt_constants.cu",
           "hbm-stream.cu", "github.com/pranjalssh/fast.cu", "examples/matmul/matmul_5.cuh", "OUTPUT.cpp", "bias.cuh", "folder/stem.cuh"}
SOURCES = {".h", ".c", ".cpp", ".cuh", ".cu"}
COMMENT = re.compile(r'^(?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*//(.*)')
CITED = re.compile(r"(?<![\w./<*$~-])((?:[\w.-]+/)*[\w-]+\.(?:cuh|cpp|cu|h|md|py))\b(?![\w/(*])")
FOLDERS = (r"scripts|abi|templates|codegen|cache|collective|ops|api|python|reference|sim|tests|bench|examples|cmake|docs|\.ci")


class Documents:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.texts = {path: path.read_text() for path in [root / "README.md", root / "python/README.md", root / "sim/README.md",
                                                          *sorted((root / "docs").glob("*.md"))]}
        self.snippets = snippets.snippets()
        self.examples = {path.name: path.read_text() for path in (root / "examples").rglob("*") if path.is_file()}
        self.flags = {}
        self.failed = []

    def fail(self, path, message):
        self.failed.append(f"{path.relative_to(self.root)}: {message}")

    def run(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    # --- what every document must keep ---

    def check_lines(self, path, text):
        lines = text.splitlines()
        if path.name == "README.md" and len(lines) > README_LINES:
            self.fail(path, f"has {len(lines)} lines, allowed are {README_LINES}")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS and not (path.name in GENERATED and line.startswith("|")):
                self.fail(path, f"line {number} has {len(line)} columns, allowed are {COLUMNS}")

    def check_code(self, path, text):
        for block in re.findall(r"^```(?:c|cuh)\n(.*?)^```", text, re.M | re.S):
            if not any(block in example for example in self.examples.values()):
                self.fail(path, f"no example has the lines from {block.splitlines()[0]!r} on")

    def check_python(self, path, text):
        """Python stands in fences that python/tests runs; it compiles and is no wider than the text."""
        if re.search(r"^    (?:import \w|from \w+ import )", text, re.M):
            self.fail(path, "shows Python without a fence ```python, so that no test runs it")
        shown = [each for each in self.snippets if each.document == str(path.relative_to(self.root))]
        if len(shown) != len(re.findall(r"^```py", text, re.M)):
            self.fail(path, "has a fence of Python that python/tests/snippets.py does not find")
        for each in shown:
            if each.kind not in snippets.KINDS:
                self.fail(path, f"line {each.line}: the word behind ```python is {each.kind}; allowed are {', '.join(snippets.KINDS[1:])}")
            try:
                each.code()
            except SyntaxError as error:
                self.fail(path, f"line {error.lineno}: {error.msg}")

    def check_names(self, path, text):
        for name in sorted(set(re.findall(rf"`((?:{FOLDERS})/[\w./*-]*)`", text))):
            found = any(self.root.glob(name)) if "*" in name else (self.root / name).exists()
            if not found:
                self.fail(path, f"{name} is named and does not exist")

    def check_links(self, path, text):
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, section = target.partition("#")
            to = (path.parent / name).resolve() if name else path
            if not to.exists():
                self.fail(path, f"the link {target} leads to no file")
            elif section and section not in sections(to.read_text()):
                self.fail(path, f"the link {target} leads to no section")

    # --- comments of the sources ---

    def check_comments(self):
        """A file or document that a comment names, with or without its folders, is in the tree."""
        listed = self.run("git", "-C", self.root, "ls-files").stdout.split()
        files = listed or [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]
        known = FOREIGN | {file[at:] for file in files for at in [0, *(m.end() for m in re.finditer("/", file))]}
        for file in files:
            path = self.root / file
            if path.suffix not in SOURCES or not path.is_file():
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                comment = COMMENT.match(line)
                for name in CITED.findall(comment[1]) if comment else []:
                    if name not in known:
                        self.fail(path, f"line {number}: the comment names {name}, which is not in the tree")

    # --- commands ---

    def check_commands(self, path, text):
        joined = re.sub(r"^(    .*?) \\\n +", r"\1 ", text, flags=re.M)
        for line in re.findall(r"^    ((?:\w+=\S+ +)*(?:scripts/|build/bin/lathe ).*)$", joined, re.M):
            words = [word for word in re.split(r"\s+#", line)[0].split() if not re.match(r"[A-Z_]+=", word)]
            error = self.script_error(words) if words[0].startswith("scripts/") else self.program_error(words)
            if error:
                self.fail(path, f"the command '{line.strip()}': {error}")

    def script_error(self, words):
        script = self.root / words[0]
        if not script.is_file():
            return f"{words[0]} does not exist"
        sources = [script] + sorted((self.root / "scripts" / "visit").glob("*.py"))
        text = "".join(source.read_text() for source in sources)
        for flag in flags_of(words):
            if flag not in text:
                return f"{words[0]} has no {flag}"
        return None

    def program_error(self, words):
        """The verb, and under it another verb if it has any, then flags."""
        verbs = []
        for word in words[1:]:
            if word.startswith("-") or word not in self.help_of(verbs)[0]:
                break
            verbs.append(word)
        names, known = self.help_of(verbs)
        if names:
            return f"{' '.join(verbs) or 'lathe'} needs one of: {', '.join(sorted(names))}"
        for flag in flags_of(words):
            if flag not in known:
                return f"{' '.join(verbs)} has no {flag}"
        return None

    def help_of(self, verbs):
        """The subcommands and the flags that --help lists after these verbs."""
        key = tuple(verbs)
        if key not in self.flags:
            done = self.run(self.build / "bin/lathe", *verbs, "--help")
            if done.returncode != 0:
                sys.exit(f"docs_test: lathe {' '.join(verbs)} --help: exit {done.returncode}: {done.stderr}")
            _, _, below = done.stdout.partition("\nSubcommands:\n")
            names = set(re.findall(r"^  (\w+) ", below, re.M))
            self.flags[key] = names, set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", done.stdout, re.M))
        return self.flags[key]

    # --- all of it ---

    def check(self):
        readme = self.root / "README.md"
        program = self.root / "docs/c.md"
        if f"```c\n{self.examples['conv1d.c']}```" not in self.texts[program]:
            self.fail(program, "the whole of examples/conv1d.c is not shown")
        for path, text in self.texts.items():
            self.check_lines(path, text)
            self.check_code(path, text)
            self.check_python(path, text)
            self.check_names(path, text)
            self.check_links(path, text)
            self.check_commands(path, text)
        linked = self.texts[readme]
        for path in self.texts:
            if path.parent.name == "docs" and f"(docs/{path.name})" not in linked:
                self.fail(readme, f"docs/{path.name} is not in the list of documents")
        for words in (["scripts/docs", "--check", "--build", self.build], ["scripts/plots", "--h200", "--check"]):
            done = self.run(sys.executable, self.root / words[0], *words[1:])
            if done.returncode != 0:
                self.failed.append(f"{words[0]} --check: exit {done.returncode}\n{done.stdout}{done.stderr}".strip())
        self.check_readme_numbers(" ".join(linked.split()))
        self.check_simulator()
        self.check_comments()
        return self.failed

    def check_readme_numbers(self, readme):
        """README says again what other documents have: the race of sim/README.md, the clock's error, a call's time."""
        clock = (self.root / "sim/clock/accuracy.md").read_text()
        median, worst, calls = re.search(r"Median error (\d+)%, worst (\d+)%, of (\d+) calls", clock).groups()
        python = self.texts[self.root / "docs/python.md"]
        ours, theirs = (next(line.split("|")[-3].strip() for line in python.splitlines() if line.startswith(f"| {call}"))
                        for call in ("`lathe.compat` without gradients", "fla's own `chunk_kda`"))  # the column of KDA
        race = re.search(r"lathe sim: racecheck race: .*?\n\n", self.texts[self.root / "sim/README.md"], re.S)[0]
        for words in (f"beside {calls} calls on an H200 its median error is {median} %, the worst {worst} %",
                      f"A call of KDA from Python takes {ours} us of processor time; flash-linear-attention takes {theirs} us",
                      " ".join(race.split())):
            if words not in readme:
                self.failed.append(f"README.md: does not say '{words}', as another document does")

    def check_simulator(self):
        """docs/environment.md has the variables that sim/ reads, and no others."""
        shown = set(re.findall(r"^\| `(LATHE_SIM_[A-Z_]+)`", self.texts[self.root / "docs/environment.md"], re.M))
        used = {name for path in (self.root / "sim").glob("*/*.cpp") if path.parent.name != "tests"
                for name in re.findall(r'"(LATHE_SIM_[A-Z_]+)"', path.read_text())}
        library = set(re.findall(r'"(LATHE_SIM_[A-Z_]+)"', (self.root / "codegen/base/env.cpp").read_text()))
        for name in sorted(used ^ (shown - library)):
            self.failed.append(f"docs/environment.md: {name} is in one of sim/ and the table of sim/driver/README.md alone")


def flags_of(words):
    return [word.split("=")[0] for word in words[1:] if word.startswith("--")]


def sections(text):
    """The anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def main():
    failed = Documents(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()).check()
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

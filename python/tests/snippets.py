# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The Python that documents show. Each snippet is run by a test; the word behind "python" says how:

    ```python         NumPy on the simulator, in a process of its own (core/test_documents.py)
    ```python torch   with the names of the document's earlier ones; "cuda" becomes "cpu", which the
                      simulator computes (with_torch/test_documents.py, and so the next two)
    ```python ranks   the same on two ranks, which are threads, from no names on
    ```python gpu     not run: it is compiled, and its names are looked up
"""
import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("", "torch", "ranks", "gpu")


class Snippet(NamedTuple):
    document: str
    line: int
    kind: str
    text: str

    def __str__(self):
        return f"{self.document}:{self.line}"

    def code(self):
        """Returns the compiled snippet, whose tracebacks have the document's lines."""
        return compile("\n" * (self.line - 1) + self.text, self.document, "exec")


def snippets():
    """Returns the snippets of all documents, in the order in which they stand there."""
    found = []
    readmes = [ROOT / "README.md", ROOT / "python/README.md"]
    for path in [*readmes, *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python ?(\w*)\n(.*?)^```$", text, re.M | re.S):
            line = text.count("\n", 0, match.start(2)) + 1
            found.append(Snippet(str(path.relative_to(ROOT)), line, match[1], match[2]))
    return found

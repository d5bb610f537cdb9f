# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What the wheels say of themselves beside pyproject.toml: where the sources are, and a document.

scikit-build-core calls dynamic_metadata. The address is LATHE_URL, else that of git's remote
"origin" if it is on the web; a checkout that has neither makes wheels without one.
"""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def web_address(remote):
    """Returns the https address of a remote of git, without names and passwords; "" if none."""
    found = re.fullmatch(r"(?:https?://|ssh://|git://)?(?:[^@/]+@)?([\w.-]+\.\w+)(?::\d+/|[:/])"
                         r"([\w./~+-]+?)(?:\.git)?/?", remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


def source_url():
    """Returns the address of the sources, or ""."""
    if "LATHE_URL" in os.environ:
        return os.environ["LATHE_URL"].rstrip("/")
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return web_address(asked.stdout.strip()) if asked.returncode == 0 else ""


def document(path, url):
    """Returns a document whose links to files of the sources lead to the web, or are text."""
    folder = pathlib.PurePosixPath(path).parent

    def absolute(link):
        text, target = link[1], link[2]
        if re.match(r"\w+://|#", target):
            return link[0]
        whole = os.path.normpath(folder / target)
        return f"[{text}]({url}/blob/HEAD/{whole})" if url else text

    # Code is left as it is: C++ lambdas and slices look like links.
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", (ROOT / path).read_text(encoding="utf-8"),
                     flags=re.M | re.S)
    return "".join(part if part.startswith("`") else LINK.sub(absolute, part) for part in parts)


def dynamic_metadata(field, settings=None, project=None):
    """Returns the value of a field of pyproject.toml that it calls dynamic."""
    url = source_url()
    if field == "urls":
        return {"Source": url} if url else {}
    if field == "readme":
        return {"content-type": "text/markdown", "text": document(settings["document"], url)}
    raise ValueError(f"{field} is not a field that wheel_metadata.py makes: urls, readme")


if __name__ == "__main__":
    print(source_url() or 'none; LATHE_URL or git\'s remote "origin" would give one')

"""Say what is missing before this checkout can be tagged: version, changelog, URLs, distributions.

    python release/check_release.py

Ends with 1 if anything is missing. It changes nothing, and does not tag.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FINAL = re.compile(r"\d+\.\d+\.\d+")
DATED_HEADING = r"^## {version} \(\d{{4}}-\d{{2}}-\d{{2}}\)$"


def read_version(root: Path) -> str:
    text = (root / "src" / "manyheads" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', text, flags=re.M)
    assert match
    return match[1]


def find_missing(root: Path) -> list[str]:
    """Return what keeps a checkout from being a release, as sentences with the remedy."""
    version = read_version(root)
    release = version.partition(".dev")[0]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    names = {f"manyheads-{version}.tar.gz", f"manyheads-{version}-py3-none-any.whl"}
    built = {path.name for path in (root / "dist").glob("*")}
    checks = {
        f"the version is {version}: set __version__ to {release}": FINAL.fullmatch(version),
        f"CHANGELOG.md has no heading with a date for {release}": re.search(
            DATED_HEADING.format(version=re.escape(release)), changelog, flags=re.M
        ),
        "[project.urls] of pyproject.toml has no Repository: add its address": project.get("urls", {}).get(
            "Repository"
        ),
        f"CITATION.cff does not name version {release}": f"version: {release}\n" in citation,
        "CITATION.cff has no date-released": "date-released:" in citation,
        f"dist/ has not exactly {' and '.join(sorted(names))}: make dist": built == names,
    }
    return [problem for problem, is_met in checks.items() if not is_met]


def find_changes(root: Path) -> list[str]:
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    return ["the working tree has changes that are not committed"] if status else []


def main() -> None:
    missing = [*find_missing(ROOT), *find_changes(ROOT)]
    for problem in missing:
        print(f"- {problem}")
    if missing:
        sys.exit(1)
    print(f"ready: git tag -a v{read_version(ROOT)}")


if __name__ == "__main__":
    main()

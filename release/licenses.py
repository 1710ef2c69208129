"""Write docs/licenses.md: the licenses of what `pip install manyheads` installs, as pip-licenses reads them.

    python release/smoke.py dist/manyheads-*.whl --keep .venv-core     an environment with the core
    python release/licenses.py .venv-core/bin/python

Ends with 1 if a license of the GPL family is among them.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP_LICENSES = ROOT / ".venv-release" / "bin" / "pip-licenses"
COPYLEFT = re.compile(r"\b[AL]?GPL|GNU (?:Affero |Lesser )?General Public", re.IGNORECASE)
LINKING_EXCEPTION = re.compile(r"\S+ WITH GCC-exception\S*")
HEADER = """# Licenses of the dependencies

What `pip install manyheads` installs on Linux with the CPU build of torch, and the license that each
distribution states. Written by `make licenses` with pip-licenses; `tests/contract/test_dependencies.py`
checks that nothing in the core is under the GPL. The CUDA build of torch also brings NVIDIA's libraries,
which have NVIDIA's own license. Extras are listed by the [SBOM](deployment.md#packages) of an environment
that has them.

| distribution | version | license |
|---|---|---|
"""


def is_copyleft(license: str) -> bool:
    """Return whether a license is of the GPL family; GCC's libraries, which may be linked, are not."""
    return COPYLEFT.search(LINKING_EXCEPTION.sub("", license)) is not None


def read_licenses(python: Path, tool: Path) -> list[dict[str, str]]:
    command = [str(tool), "--python", str(python), "--from=mixed", "--format=json"]
    rows: list[dict[str, str]] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return sorted((row for row in rows if row["Name"] != "manyheads"), key=lambda row: row["Name"].lower())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python", type=Path, help="interpreter of an environment that has the core only")
    parser.add_argument("--tool", type=Path, default=PIP_LICENSES)
    arguments = parser.parse_args()
    rows = read_licenses(arguments.python, arguments.tool)
    lines = [f"| {row['Name']} | {row['Version'].partition('+')[0]} | {row['License']} |" for row in rows]
    (ROOT / "docs" / "licenses.md").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    offenders = [row["Name"] for row in rows if is_copyleft(row["License"])]
    print(f"docs/licenses.md: {len(rows)} distributions")
    if offenders:
        sys.exit(f"under the GPL: {', '.join(offenders)}")


if __name__ == "__main__":
    main()

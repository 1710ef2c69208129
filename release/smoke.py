"""Install a wheel into an empty environment and run README's first commands there.

    python release/smoke.py dist/manyheads-*.whl
    python release/smoke.py dist/manyheads-*.whl --python python3.13 --extras serve

Nothing of the checkout is used but README.md, whose commands are run in an empty folder. Training is cut to
--steps steps. pip reads its usual variables (PIP_CONSTRAINT, PIP_INDEX_URL, PIP_FIND_LINKS). With the extra
`serve` the server is started and asked for a translation; without it, `manyheads serve` must say what to
install.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {  # commands of the README that need more than the core, or minutes
    "export": "needs the extra ctranslate2",
    "--stress": "takes minutes",
    "report.docx": "needs a document and the extra formats",
    "serve": "is tested apart",
    "shards/": "needs a folder of shards",
    "inspect base": "is tested by the test suite",
}
LIMITS = {"steps": None, "warmup": 10, "validate_every": 100}  # of training; steps are an option
SERVER_SECONDS = 120


def read_commands(readme: Path, steps: int) -> list[str]:
    """Return the shell commands of the section about one's own text, with little training."""
    section = (
        readme.read_text(encoding="utf-8").partition("## Train on your own text")[2].partition("\n## ")[0]
    )
    blocks = re.sub(r" *\\\n *", " ", "\n".join(re.findall(r"^    (.*)$", section, flags=re.M)))
    commands = [line.partition("  #")[0].strip() for line in blocks.splitlines()]
    limits = {**LIMITS, "steps": steps}
    for key, value in limits.items():
        commands = [re.sub(rf"\btrain\.{key}=\S+", f"train.{key}={value}", line) for line in commands]
    return [line for line in commands if "manyheads" in line and not any(word in line for word in SKIPPED)]


def create_environment(folder: Path, python: str, wheel: Path, extras: str) -> Path:
    """Return the folder of commands of a new environment that has the wheel and what it requires."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    requirement = f"{wheel.resolve()}[{extras}]" if extras else str(wheel.resolve())
    binaries = folder / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", requirement], check=True)
    subprocess.run([binaries / "python", "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
    return binaries


def make_variables(binaries: Path, work: Path) -> dict[str, str]:
    """Return the environment of a user who has installed nothing but the wheel."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return {**kept, "PATH": f"{binaries}{os.pathsep}{kept['PATH']}", "HOME": str(work), "PYTHONSAFEPATH": "1"}


def run_command(command: str, work: Path, variables: dict[str, str]) -> str:
    print(f"$ {command}", flush=True)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=work, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_server(work: Path, variables: dict[str, str]) -> None:
    """Start the server on a free port, and send it a request as README describes."""
    command = ["manyheads", "serve", "run/model", "--port", "0"]
    print("$", *command, flush=True)
    with subprocess.Popen(
        command, cwd=work, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            address = wait_for_address(server)
            body = json.dumps({"q": "I go home.", "source": "en", "target": "ko"}).encode()
            request = urllib.request.Request(
                f"{address}/translate", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                print(f"  {json.load(response)}")
        finally:
            server.terminate()


def wait_for_address(server: "subprocess.Popen[str]") -> str:
    assert server.stderr is not None
    start = time.monotonic()
    for line in server.stderr:
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            return match[0]
        if time.monotonic() - start > SERVER_SECONDS:
            break
    sys.exit("the server did not start")


def check_missing_extra(work: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        ["manyheads", "serve", "run/model"], cwd=work, env=variables, capture_output=True, text=True
    )
    if done.returncode != 2 or "pip install 'manyheads[serve]'" not in done.stderr:
        sys.exit(f"serve without its extra: exit code {done.returncode}, {done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment")
    parser.add_argument("--extras", default="", help="extras to install, such as serve,formats")
    parser.add_argument("--steps", type=int, default=200, help="steps of training")
    parser.add_argument("--keep", type=Path, help="folder of the environment, which is kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name) / "work"
        work.mkdir()
        environment = (arguments.keep or Path(name) / "environment").resolve()
        if environment.exists():
            shutil.rmtree(environment)
        binaries = create_environment(environment, arguments.python, arguments.wheel, arguments.extras)
        variables = make_variables(binaries, work)
        print(
            run_command("python --version; manyheads --version; pip freeze | grep -i ^torch", work, variables)
        )
        commands = read_commands(ROOT / "README.md", arguments.steps)
        for command in commands:
            run_command(command, work, variables)
        if "serve" in arguments.extras.split(","):
            check_server(work, variables)
        else:
            check_missing_extra(work, variables)
    print(f"{arguments.wheel.name}: installed, {len(commands)} commands of README.md ran")


if __name__ == "__main__":
    main()

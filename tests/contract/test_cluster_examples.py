"""The examples for clusters are valid files, and call commands and options that exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from manyheads.cli import app

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
SCRIPTS = sorted(FOLDER.glob("*.sbatch"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_batch_script_is_valid_bash(path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    done = subprocess.run([bash, "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")


def test_the_manifest_is_valid_and_its_parts_name_each_other() -> None:
    documents = list(yaml.safe_load_all((FOLDER / "kubernetes-train.yaml").read_text(encoding="utf-8")))
    service, job = documents
    assert [document["kind"] for document in documents] == ["Service", "Job"]
    assert service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    (container,) = pod["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    command = container["command"]
    assert f"--machines={job['spec']['completions']}" in command
    assert f"--gpus={container['resources']['limits']['nvidia.com/gpu']}" in command
    check_options(command[1], command[2:])


def test_options_of_commands_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    calls = re.findall(r"^\s*(?:exec )?manyheads (\w+)(.*)$", text, re.MULTILINE)
    assert {verb for verb, _ in calls} == {"train", "translate"}
    for verb, rest in calls:
        check_options(verb, rest.split())


def check_options(verb: str, words: list[str]) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {name for parameter in commands[verb].params for name in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known

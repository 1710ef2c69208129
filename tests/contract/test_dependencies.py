"""What the package needs: every import is declared, the core is small, and nothing in it is under the GPL."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from licenses import is_copyleft
from support.source_tree import MODULES, imported_names, parse, relative_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CORE = {
    "numpy", "rich", "sacrebleu", "sacremoses", "safetensors", "sentencepiece", "sentencex", "torch", "typer",
}  # fmt: skip
# Distributions whose top-level module has another name.
DISTRIBUTION = {
    "backports": "backports-zstd",
    "google": "protobuf",
    "markdown_it": "markdown-it-py",
    "prometheus_client": "prometheus-client",
}
# Imported only where something else has installed them.
PROVIDED = {"triton": "torch, on Linux", "IPython": "the notebook"}


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def list_names(requirements: Iterable[str]) -> set[str]:
    return {normalize_name(Requirement(text).name) for text in requirements}


def find_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level module of every import, lazy ones and import_optional("...") included."""
    for _, name in imported_names(tree):
        yield name.partition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("import_optional"), args=[ast.Constant(str(name)), *_]):
                yield name.partition(".")[0]


def test_every_import_is_declared() -> None:
    declared = list_names(PROJECT["dependencies"])
    for extra, requirements in EXTRAS.items():
        if extra != "dev":
            declared |= list_names(requirements)
    undeclared = {
        f"{relative_name(path)}: {module}"
        for path in MODULES
        for module in find_imports(parse(path))
        if module not in {*sys.stdlib_module_names, "manyheads", *PROVIDED}
        and normalize_name(DISTRIBUTION.get(module, module)) not in declared
    }
    assert not sorted(undeclared)


def test_the_core_is_this_and_no_more() -> None:
    assert list_names(PROJECT["dependencies"]) == CORE


def test_the_development_extra_has_all_others_but_ray() -> None:
    """Ray is large, and only `make test-all` installs it."""
    (own,) = [Requirement(text) for text in EXTRAS["dev"] if text.startswith("manyheads")]
    assert own.extras == set(EXTRAS) - {"dev", "ray"}


def test_every_requirement_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    declared = list_names([*PROJECT["dependencies"], *(text for texts in EXTRAS.values() for text in texts)])
    assert not sorted(declared - {"manyheads"} - pinned)


def find_closure(names: Iterable[str]) -> dict[str, metadata.PackageMetadata]:
    """Return the metadata of distributions and all their requirements, as far as they are installed here."""
    closure: dict[str, metadata.PackageMetadata] = {}
    pending = list(names)
    while pending:
        name = normalize_name(pending.pop())
        if name in closure:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        closure[name] = distribution.metadata
        requirements = [Requirement(text) for text in distribution.requires or []]
        pending += [
            requirement.name
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return closure


def get_license(package: Any) -> str:
    """Return the license expression, or else the classifiers and the first line of the license."""
    if package.get("License-Expression"):
        return str(package["License-Expression"])
    classifiers = [text for text in package.get_all("Classifier") or [] if text.startswith("License ::")]
    return "; ".join([*classifiers, *str(package.get("License") or "").splitlines()[:1]])


def test_nothing_in_the_core_is_under_the_gpl() -> None:
    closure = find_closure(CORE)
    assert set(closure) >= CORE
    licenses = {name: get_license(package) for name, package in closure.items()}
    assert {name: text for name, text in licenses.items() if is_copyleft(text)} == {}
    assert [name for name, text in licenses.items() if not text] == []


@pytest.mark.parametrize("extra", ["formats", "parquet", "ray"])
def test_readers_of_formats_and_ray_are_not_under_the_gpl(extra: str) -> None:
    if extra == "ray":
        pytest.importorskip("ray", reason="Ray is installed by `make test-all`")
    closure = find_closure(list_names(EXTRAS[extra]))
    assert set(closure) >= list_names(EXTRAS[extra])
    assert not [name for name, package in closure.items() if is_copyleft(get_license(package))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPL-3.0-or-later", True),
        ("License :: OSI Approved :: GNU General Public License v2 (GPLv2)", True),
        ("LGPL-2.1-only", True),
        ("AGPL-3.0", True),
        ("BSD-3-Clause AND MIT", False),
        ("BSD-3-Clause AND GPL-3.0-or-later WITH GCC-exception-3.1", False),
    ],
)
def test_copyleft_licenses_are_recognized(text: str, expected: bool) -> None:
    assert is_copyleft(text) == expected

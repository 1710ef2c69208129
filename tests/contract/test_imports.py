"""Who may import whom. Data goes one way, without cycles; lazy imports count like all others."""

import ast
import sys
from collections.abc import Mapping, Set
from pathlib import Path

from support.source_tree import MODULES, SOURCE, imported_names, module_name, parse, relative_name

# Every package may import these.
FOUNDATION = {"errors", "config", "packed", "progress", "plot_style", "atomic_io", "worker_processes"}
TRANSLATION = {
    "translator", "translation", "confidence_policy", "pipeline", "glossary", "loading", "named_models",
    "memory",
}  # fmt: skip
PRODUCT = {
    "presets", "ops", "cuda", "text", "text.datasets", "data", "model", "search", "checkpoint", "inference",
    "confidence", *TRANSLATION, "judge", "documents", "bulk", "evaluate", "train", "export", "hub", "distill",
    "look", "serve",
}  # fmt: skip
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "config": {"errors", "atomic_io"},
    "presets": set(),
    "packed": {"errors"},
    "progress": {"errors"},
    "plot_style": {"errors"},
    "atomic_io": {"errors"},
    "worker_processes": {"errors"},
    "ops": set(),
    "cuda": {"ops"},
    "text": set(),
    "playground": {"text"},
    "text.datasets": {"text", "playground"},  # `manyheads get playground`
    "data": {"text"},
    "model": {"ops"},
    "search": {"ops"},
    "checkpoint": {"model", "text"},
    "named_models": {"checkpoint"},
    "hub": {"checkpoint", "named_models"},
    "inference": {"ops", "cuda", "text", "model", "search", "checkpoint"},
    "memory": {"text", "checkpoint", "named_models"},
    "confidence": {"text"},
    "judge": {"text", "data", "confidence"},
    "glossary": {"text", "search"},
    "translation": {"text", "model", "search", "inference", "memory"},
    "confidence_policy": {"text", "translation"},
    "pipeline": {"text", "search", "inference", "confidence", "glossary", "memory", "translation"},
    "translator": {
        "text",
        "search",
        "inference",
        "confidence",
        "glossary",
        "memory",
        "translation",
        "pipeline",
    },
    "loading": {
        "ops",
        "cuda",
        "text",
        "model",
        "search",
        "checkpoint",
        "inference",
        "confidence",
        "named_models",
        "export",
        "memory",
        "translator",
    },
    "documents": {"text", "translation", "confidence_policy"},
    "bulk": {"cuda", "text", "search", "checkpoint", "inference", *TRANSLATION},
    "evaluate": {"text", "confidence", *TRANSLATION},
    "train": {
        "presets",
        "ops",
        "cuda",
        "text",
        "text.datasets",
        "data",
        "model",
        "search",
        "checkpoint",
        "inference",
        "confidence",
        "evaluate",
        *TRANSLATION,
    },
    "export": {"text", "model", "search", "checkpoint", "confidence", "inference", "named_models"},
    "distill": {
        "presets",
        "cuda",
        "text",
        "data",
        "checkpoint",
        "export",
        "bulk",
        "evaluate",
        "train",
        *TRANSLATION,
    },
    # of confidence, the known words
    "look": {"text", "ops", "model", "checkpoint", "confidence", "evaluate", *TRANSLATION},
    "serve": {  # of train, the log; of confidence, the known words
        "text",
        "search",
        "inference",
        "confidence",
        "evaluate",
        "look",
        "train",
        "documents",
        *TRANSLATION,
    },
    "demo": {"playground", "text", "data", "checkpoint", "evaluate", "train", "look", *TRANSLATION},
    "paper": {"playground", "demo", *PRODUCT},
    "cli": {"demo", "paper", *PRODUCT},
    "__main__": {"cli"},
    "__init__": {"presets", "model", *TRANSLATION},  # the public names, imported at first use
}
# What importing a module may need; other packages are imported inside the functions that use them.
CORE_REQUIREMENTS = {"torch", "numpy", "typer", "sentencepiece"}
# Packages that are imported by their command only may need what their extra installs.
EXTRA_REQUIREMENTS = {
    "ops": {"triton"},  # installed with torch wherever there is a GPU
    "serve": {"fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn"},
}
FORBIDDEN_FILE_NAMES = {"utils", "helpers", "common", "misc"}
UNPICKLERS = {"pickle", "shelve", "marshal"}
MODULE_NAMES = {module_name(path) for path in MODULES}


def package_of(module: str) -> str:
    """Return the row of MAY_IMPORT that a module belongs to."""
    parts = module.split(".")[1:]
    if not parts:
        return "__init__"
    return "text.datasets" if parts[:2] == ["text", "datasets"] else parts[0]


def imported_modules(path: Path, lazy: bool = True) -> dict[str, int]:
    """Return our modules that a file imports, lazy imports included, with the line of the first import."""
    modules: dict[str, int] = {}
    for node, name in imported_names(parse(path)):
        if not lazy and node not in parse(path).body:
            continue
        if name.partition(".")[0] == "manyheads":
            while name not in MODULE_NAMES:
                name = name.rpartition(".")[0]
            modules.setdefault(name, node.lineno)
    return modules


def find_cycle(graph: Mapping[str, Set[str]]) -> list[str]:
    """Return the nodes that cannot be put into an order, or an empty list."""
    left = dict(graph)
    while free := [node for node, others in left.items() if not (others - {node}) & left.keys()]:
        for node in free:
            del left[node]
    return sorted(left)


def test_imports_are_absolute() -> None:
    offenders = [
        f"{relative_name(path)}:{node.lineno}"
        for path in MODULES
        for node, name in imported_names(parse(path))
        if name.startswith(".")
    ]
    assert not offenders


def test_packages_import_only_what_their_row_allows() -> None:
    offenders = []
    for path in MODULES:
        package = package_of(module_name(path))
        allowed = MAY_IMPORT[package] | {package}
        if package not in FOUNDATION:
            allowed |= FOUNDATION
        for module, line in imported_modules(path).items():
            if module == "manyheads":  # only for the version
                names = {name for _, name in imported_names(parse(path)) if name.count(".") < 2}
                if names & {"manyheads"} or "manyheads.__version__" not in names:
                    offenders.append(f"{relative_name(path)}:{line} imports the package itself")
            elif package_of(module) not in allowed:
                offenders.append(f"{relative_name(path)}:{line} imports {module}")
    assert not offenders


def test_the_rules_have_no_cycle() -> None:
    assert not find_cycle({package: others - {package} for package, others in MAY_IMPORT.items()})


def test_the_rules_cover_every_package_and_no_other() -> None:
    assert {package_of(module) for module in MODULE_NAMES} == set(MAY_IMPORT)


def test_modules_have_no_import_cycle() -> None:
    graph = {module_name(path): imported_modules(path).keys() - {"manyheads"} for path in MODULES}
    assert not find_cycle(graph)


def test_importing_a_module_needs_core_requirements_only() -> None:
    offenders = []
    for path in MODULES:
        allowed = {"manyheads", *sys.stdlib_module_names, *CORE_REQUIREMENTS}
        allowed |= EXTRA_REQUIREMENTS.get(package_of(module_name(path)), set())
        for statement in parse(path).body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                names = {name.partition(".")[0] for _, name in imported_names(statement)}
                offenders += [f"{relative_name(path)} imports {name}" for name in sorted(names - allowed)]
    assert not offenders


def test_packages_with_extra_requirements_are_imported_lazily() -> None:
    """Of `serve`, the commands may import at once only what needs no extra, such as its limits."""
    paths = {module_name(path): path for path in MODULES}
    offenders = []
    for path in MODULES:
        for module in imported_modules(path, lazy=False):
            if package_of(module) == "serve" != package_of(module_name(path)):
                statements = [
                    s for s in parse(paths[module]).body if isinstance(s, ast.Import | ast.ImportFrom)
                ]
                names = {name.partition(".")[0] for s in statements for _, name in imported_names(s)}
                if names & EXTRA_REQUIREMENTS["serve"]:
                    offenders.append(f"{relative_name(path)} imports {module}")
    assert not offenders


def test_nothing_of_the_product_imports_the_experiments() -> None:
    """Only commands use `paper`; the corpus generator serves `get`, `demo` and `paper`."""
    users = {"paper": {"paper", "cli"}, "playground": {"playground", "text.datasets", "demo", "paper"}}
    offenders = [
        f"{relative_name(path)} imports {module}"
        for path in MODULES
        for module in imported_modules(path)
        for package, allowed in users.items()
        if package_of(module) == package and package_of(module_name(path)) not in allowed
    ]
    assert not offenders


def test_files_have_names_that_say_what_they_hold() -> None:
    assert not [relative_name(path) for path in MODULES if path.stem in FORBIDDEN_FILE_NAMES]


def test_no_module_has_the_name_of_a_folder_beside_it() -> None:
    assert not [relative_name(path) for path in MODULES if path.with_suffix("").is_dir()]


def test_nothing_is_unpickled() -> None:
    offenders = []
    for path in MODULES:
        tree = parse(path)
        offenders += [
            f"{relative_name(path)}:{node.lineno}"
            for node, name in imported_names(tree)
            if name.partition(".")[0] in UNPICKLERS
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.load":
                offenders.append(f"{relative_name(path)}:{node.lineno}")
    assert not offenders


def test_the_package_is_where_the_tests_look() -> None:
    assert (SOURCE / "__init__.py").exists()
    assert len(MODULES) > 100

"""The model card as README.md of a repository: the Hub reads its front matter, people read the rest."""

import json
from collections.abc import Mapping

DELIMITER = "---"


def format_readme(
    card: str | None, languages: Mapping[str, str], repository: str, license: str | None
) -> str:
    """Return the card with front matter, or a short text for a model without a card.

    Values of the front matter are JSON strings, which are YAML strings too.
    """
    source, target = languages["source"], languages["target"]
    front_matter = [
        *([f"license: {json.dumps(license)}"] if license else []),
        f"language: {json.dumps(list(dict.fromkeys((source, target))), ensure_ascii=False)}",
        "library_name: manyheads",
        "pipeline_tag: translation",
        'tags: ["manyheads", "translation", "transformer"]',
    ]
    text = card or f"# Translation from {source} to {target}\n\nThis model has no card.\n"
    return "\n".join([DELIMITER, *front_matter, DELIMITER, "", text + format_usage(repository)])


def format_usage(repository: str) -> str:
    name = repository.partition("/")[2]
    return f"\n## Usage\n\n    manyheads pull {repository}\n    manyheads translate {name}\n"


def parse_readme(readme: str, repository: str) -> str:
    """Return the card: what lies between the front matter and the usage, where these are."""
    return strip_front_matter(readme).removesuffix(format_usage(repository))


def strip_front_matter(readme: str) -> str:
    lines = readme.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != DELIMITER:
        return readme
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == DELIMITER:
            return "".join(lines[number + 1 :]).lstrip("\n")
    return readme

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
    usage = (
        f"## Usage\n\n    manyheads pull {repository}\n    manyheads translate {repository.split('/')[1]}\n"
    )
    return "\n".join([DELIMITER, *front_matter, DELIMITER, "", text.rstrip("\n"), "", usage])


def strip_front_matter(readme: str) -> str:
    """Return the text after the front matter, if there is one."""
    lines = readme.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != DELIMITER:
        return readme
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == DELIMITER:
            return "".join(lines[number + 1 :]).lstrip("\n")
    return readme

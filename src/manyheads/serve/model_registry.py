"""The served models by language pair."""

from collections.abc import Sequence

from manyheads.errors import RequestError
from manyheads.serve.served_model import ServedModel


class ModelRegistry:
    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = list(models)
        self.codes = sorted({code for model in models for code in (model.source, model.target)})

    def normalize_code(self, code: str) -> str:
        """Return a code in the case in which it is served; an unknown code stays as it is."""
        matches = [served for served in [*self.codes, "auto"] if served.casefold() == code.casefold()]
        return code if code in matches or not matches else matches[0]

    def find_model(self, source: str, target: str, name: str | None = None) -> ServedModel:
        """Return the first model of a language pair, or the one with the given name."""
        source, target = self.normalize_code(source), self.normalize_code(target)
        self.check_language(source)
        self.check_language(target)
        models = [model for model in self.models if (model.source, model.target) == (source, target)]
        if not models:
            pairs = ", ".join(sorted({f"{model.source} to {model.target}" for model in self.models}))
            raise RequestError(f"no model translates {source} to {target}; served: {pairs}")
        for model in models:
            if name in (None, model.name):
                return model
        names = ", ".join(model.name for model in models)
        raise RequestError(f"no model {name!r} for {source} to {target}; served: {names}")

    def check_language(self, code: str) -> None:
        if self.normalize_code(code) not in self.codes:
            raise RequestError(f"the language {code!r} is not served; served: {', '.join(self.codes)}")

    def find_sources(self, target: str) -> list[str]:
        """Return the languages with a model into the target."""
        self.check_language(target)
        return sorted({model.source for model in self.models if model.target == target})

    def find_targets(self, source: str) -> list[str]:
        return sorted({model.target for model in self.models if model.source == source})

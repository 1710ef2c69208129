"""The served models by language pair."""

from collections.abc import Sequence

from manyheads.errors import RequestError
from manyheads.serve.served_model import ServedModel
from manyheads.text.languages import get_base_language


class ModelRegistry:
    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = list(models)
        self.codes = sorted({code for model in models for code in (model.source, model.target)})

    def normalize_code(self, code: str) -> str:
        """Return the served code that one means; an unknown code stays as it is.

        Case and the separator do not matter, nor does a region that is not served: EN, en_US and en-GB are
        en. A language without a region is the first that is served with one: zh is zh-Hans.
        """
        served = {known.casefold(): known for known in reversed([*self.codes, "auto"])}
        plain = code.casefold().replace("_", "-")
        if plain in served:
            return served[plain]
        base = get_base_language(plain)
        if base in served and base != "auto":
            return served[base]
        regions = [known for known in self.codes if get_base_language(known).casefold() == plain]
        return regions[0] if regions else code

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

"""Models with adapters, merged when a request first names them.

Each has the weights of its linear layers, and shares everything else with the model that it belongs to. So
requests with and without adapters are decoded side by side. An adapter whose file changed is merged again.
"""

import logging
import threading
import time
from collections import OrderedDict

from manyheads.errors import CheckpointError, RequestError
from manyheads.loading import MAX_ADAPTERS, get_adapter_version, use_adapter
from manyheads.serve.served_model import ServedModel

LOG = logging.getLogger("manyheads.serve")
MAX_ADAPTED_MODELS = MAX_ADAPTERS  # in memory; the one that was not used for the longest time is dropped


class AdaptedModels:
    """The adapted models in memory, by model and adapter. Several threads may use it."""

    def __init__(self, max_models: int = MAX_ADAPTED_MODELS) -> None:
        self.max_models = max_models
        self.models: OrderedDict[tuple[ServedModel, str], tuple[object, ServedModel]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, model: ServedModel, adapter: str, user: str | None = None) -> ServedModel:
        """Return a model with an adapter. The first call for an adapter reads and merges it.

        Adapters that were learned from the corrections of other users do not exist for a user.
        """
        if model.is_remote:
            raise RequestError("adapters need a server with one process: serve with --processes 1")
        names = model.list_adapters(user)
        if adapter not in names:
            there = f"it has {', '.join(names)}" if names else "it has none"
            if not model.can_adapt:
                there = f"the {model.translator.engine.name} engine runs none: serve with --engine torch"
            raise RequestError(f"the model {model.name} has no adapter {adapter[:80]!r}; {there}")
        folder = model.translator.folder
        assert folder is not None
        with self.lock:
            version = get_adapter_version(folder, adapter)
            known = self.models.pop((model, adapter), None)
            if known is None or known[0] != version:
                retire(known)
                known = version, self._merge(model, adapter)
            self.models[model, adapter] = known
            while len(self.models) > self.max_models:
                retire(self.models.popitem(last=False)[1])
            return known[1]

    def _merge(self, model: ServedModel, adapter: str) -> ServedModel:
        start = time.monotonic()
        try:
            translator = use_adapter(model.translator, adapter)
        except CheckpointError as error:
            LOG.error("%s", error)
            raise RequestError(
                f"the adapter {adapter!r} of {model.name} cannot be used; the log of the server says why"
            ) from None
        LOG.info("%s: adapter %s merged in %.0f ms", model.name, adapter, 1000 * (time.monotonic() - start))
        return ServedModel(model.name, translator)


def retire(entry: tuple[object, ServedModel] | None) -> None:
    """Mark a model whose last requests are being answered."""
    if entry is not None:
        entry[1].retired_at = time.monotonic()

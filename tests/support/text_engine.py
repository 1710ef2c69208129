"""An engine that applies a function to the text of each source: a model that errs as a test needs it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from manyheads.config import DecodingConfig
from manyheads.inference.engine import Capabilities
from manyheads.search.options import Hypothesis, Request
from manyheads.text.subwords import SubwordTokenizer

CAPABILITIES = Capabilities(
    sampling=True,
    forbidden_phrases=True,
    required_phrases=True,
    alignment=False,
    attention=False,
    token_scores=True,
    devices=("cpu",),
    max_positions=None,
)


class TextEngine:
    """Returns one hypothesis for each function, in their order."""

    name, objective, read_ahead = "text", "nothing", 64
    capabilities = CAPABILITIES

    def __init__(self, subwords: SubwordTokenizer, *functions: Callable[[str], str]) -> None:
        self.subwords, self.functions = subwords, functions
        self.sources: list[str] = []  # what the model has read

    def require(self, feature: str) -> None: ...

    def decode(
        self,
        requests: Iterable[Request],
        config: DecodingConfig,
        *,
        scores: str = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        stream, first = iter(requests), 0
        while waiting := list(islice(stream, window)):
            for index, request in reversed(list(enumerate(waiting))):
                source = self.subwords.decode(request.source)
                self.sources.append(source)
                yield first + index, [self._create(function(source)) for function in self.functions]
            first += len(waiting)

    def _create(self, text: str) -> Hypothesis:
        ids = self.subwords.encode(text)
        return Hypothesis(ids, [-1.0] * (len(ids) + 1), -1.0)


class ByteEngine(TextEngine):
    """Returns these pieces, such as bytes that are no UTF-8."""

    def __init__(self, subwords: SubwordTokenizer, pieces: Sequence[str]) -> None:
        super().__init__(subwords, lambda text: text)
        self.ids = [subwords.pieces.index(piece) for piece in pieces]

    def _create(self, text: str) -> Hypothesis:
        return Hypothesis(self.ids, [-1.0] * (len(self.ids) + 1), -1.0)

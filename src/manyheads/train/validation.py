"""Validation during training: the loss of the validation set, and BLEU of a few of its sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from manyheads.confidence.calibration import ConfidenceParameters
from manyheads.config import Config, DataConfig
from manyheads.data.batches import Batches
from manyheads.data.store import Store
from manyheads.evaluate.bleu import Score, greedy_bleu
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.progress import ReportProgress
from manyheads.train.calibrate import calibrate
from manyheads.train.distributed import DistributedContext
from manyheads.train.loss import chunked_loss
from manyheads.train.precision import autocast
from manyheads.train.preflight import cap_length
from manyheads.translator import Translator


@dataclass(frozen=True)
class SampleTranslations:
    """BLEU of some sentences of the validation set, by greedy search."""

    score: Score
    sources: Sequence[str]
    translations: Sequence[str]


class Validator:
    """Evaluates the model on the split `valid`, if the data has one, and on that of general data."""

    def __init__(
        self,
        model: EncoderDecoder,
        config: Config,
        store: Store,
        dist: DistributedContext,
        general: Store | None = None,
    ) -> None:
        self.model, self.config, self.store, self.dist, self.general = model, config, store, dist, general
        self.engine: TorchEngine | None = None  # made for the first translations

    @property
    def has_data(self) -> bool:
        return "valid" in self.store.splits

    @torch.no_grad()
    def loss(self, store: Store | None = None) -> float:
        """Return the mean negative log-likelihood of a token, without label smoothing."""
        self.model.eval()
        device = self.dist.device
        batches = self._batches(store or self.store)
        nll, tokens = 0.0, 0
        for index in range(batches.count_batches(0)):
            batch = batches.get_batch(0, index).to(device)
            labels = batch.labels.tokens
            with autocast(self.config.train, device):
                hidden = self.model.hidden(batch.source, batch.inputs)
                nll += chunked_loss(hidden, self.model.output, labels, self.config.train).nll.item()
            tokens += len(labels)
        total, count = self.dist.all_reduce_sum(nll, tokens)
        return total / max(1.0, count)

    def measure_general(self, *, with_bleu: bool) -> dict[str, float]:
        """Return the loss and BLEU on general data, if there is some: what an adapted model forgets."""
        if self.general is None or "valid" not in self.general.splits:
            return {}
        measures = {"general_loss": self.loss(self.general)}
        if with_bleu and (sample := self.translate_sample(self.general)):
            measures["general_bleu"] = sample.score.value
        return measures

    def translate_sample(self, store: Store | None = None) -> SampleTranslations | None:
        """Translate the first `train.bleu_sentences` sentences that fit."""
        count, store = self.config.train.bleu_sentences, store or self.store
        if not count:
            return None
        numbers = self._batches(store).usable[:count]
        texts = store.read_text("valid")
        sources, references = ([lines[number] for number in numbers] for lines in texts)
        score, translations = greedy_bleu(
            self._translator(self.config.data.batch_tokens), sources, references
        )
        return SampleTranslations(score, sources, translations)

    def calibrate(self, report_progress: ReportProgress) -> ConfidenceParameters:
        """Calibrate the confidence of the model, decoded as its configuration says."""
        max_length = min(self.config.data.max_length, self.store.supported_length)
        max_length = cap_length(self.config.model, max_length)
        return calibrate(self._translator(max_length), self.store, report_progress)

    def _translator(self, max_length: int) -> Translator:
        self.model.eval()
        if self.engine is None:
            self.engine = TorchEngine(self.model, self.dist.device, self.config.train.precision)
        self.engine.refresh_weights()
        subwords = self.store.subwords
        return Translator(
            self.engine,
            subwords,
            self.store.manifest["languages"],
            max_length=max_length,
            decoding=self.config.decoding,
            uses_copy_symbols=self.config.augmentation.copied > 0 and subwords.has_copy_symbols,
            uses_term_symbols=self.config.augmentation.terms > 0 and subwords.source.has_term_symbols,
        )

    def _batches(self, store: Store) -> Batches:
        return Batches(
            store.load_split("valid"),
            self._data_config(),
            seed=self.config.train.seed,
            rank=self.dist.rank,
            world_size=self.dist.world_size,
            subwords=store.subwords,
        )

    def _data_config(self) -> DataConfig:
        """No pair is dropped, except those beyond learned positions, and subwords are not sampled."""
        max_length = cap_length(self.config.model, self.config.data.batch_tokens)
        return replace(self.config.data, subword_regularization=0.0, max_length=max_length)

"""What an update makes smaller: the loss of a batch (5.4), as a module."""

import torch
from torch import Tensor, nn

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.ops.batch_cache import precompute_layout
from manyheads.packed import Packed
from manyheads.train.loss import chunked_loss


class Objective(nn.Module):
    """The loss as a module, which torch's wrapper for several ranks takes hold of.

    Compiled, the model is one program for batches of every shape; the loss, which holds no more than a chunk
    of the logits at once, stays as it is.
    """

    def __init__(self, model: EncoderDecoder, train: TrainConfig) -> None:
        super().__init__()
        self.model, self.train_config = model, train
        self.hidden = torch.compile(model.hidden, dynamic=True) if train.compile else model.hidden

    def forward(self, source: Packed, inputs: Packed, labels_T: Tensor) -> tuple[Tensor, Tensor]:
        readings = self.train_config.forward_passes
        if readings == 2:
            source, inputs = source.duplicate(), inputs.duplicate()
        if self.train_config.compile:
            source, inputs = precompute_layout(source), precompute_layout(inputs)
        config, extra = self.model.config, list[Tensor]()
        has_experts = isinstance(config, TransformerConfig) and config.experts is not None
        hidden_TD = (
            self.hidden(source, inputs, aux_losses=extra) if has_experts else self.hidden(source, inputs)
        )
        loss = chunked_loss(
            hidden_TD, self.model.output, labels_T, self.train_config, forward_passes=readings
        )
        total = loss.total
        if extra and isinstance(
            config, TransformerConfig
        ):  # of a token as much as of another, since whoever updates divides by their number
            total = total + config.experts_balance_weight * len(labels_T) * torch.stack(extra).sum()
        return total, loss.nll

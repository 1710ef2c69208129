"""The training objective: the loss of a batch (5.4), as a module."""

import torch
from torch import Tensor, nn

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.ops.batch_cache import precompute_layout
from manyheads.packed import Packed
from manyheads.train.loss import chunked_loss


class Objective(nn.Module):
    """Computes the loss from tokens. It is a module, so that DistributedDataParallel can wrap it.

    With train.compile, the model is compiled once for batches of every shape. The loss is not: it never
    holds more than a chunk of the logits.
    """

    def __init__(self, model: EncoderDecoder, train: TrainConfig) -> None:
        super().__init__()
        self.model, self.train_config = model, train
        self.hidden = torch.compile(model.hidden, dynamic=True) if train.compile else model.hidden

    def forward(
        self, source: Packed, inputs: Packed, labels_T: Tensor, loss_gradient: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the unsmoothed negative log-likelihood, both summed over tokens.

        A `loss_gradient` is the number from which the backward pass will start, known in advance.
        """
        train, config = self.train_config, self.model.config
        if train.forward_passes == 2:  # R-Drop: one pass over the batch twice
            source, inputs = source.duplicate(), inputs.duplicate()
        if train.compile:
            source, inputs = precompute_layout(source), precompute_layout(inputs)
        aux_losses: list[Tensor] = []
        if isinstance(config, TransformerConfig) and config.experts is not None:
            hidden_TD = self.hidden(source, inputs, aux_losses=aux_losses)
        else:
            hidden_TD = self.hidden(source, inputs)
        loss = chunked_loss(
            hidden_TD,
            self.model.output,
            labels_T,
            train,
            forward_passes=train.forward_passes,
            loss_gradient=loss_gradient,
        )
        total = loss.total
        if aux_losses and isinstance(config, TransformerConfig):
            # Times the number of tokens, by which the update divides.
            balance = torch.stack(aux_losses).sum()
            total = total + config.experts_balance_weight * len(labels_T) * balance
        return total, loss.nll

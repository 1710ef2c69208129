"""How a row's next token is picked without a beam: the likeliest, or one at random.

Shapes: B sentences, W rows of each; K vocabulary, k of its tokens that may be drawn.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from manyheads.config import DecodingConfig


def pick_tokens(logits_BWK: Tensor, config: DecodingConfig, generators: Sequence[torch.Generator]) -> Tensor:
    """Return the likeliest token of each row, or with a temperature one at random. [B, W]"""
    if config.temperature is None:
        return logits_BWK.argmax(-1)
    return sample_tokens(logits_BWK, config, generators)


def sample_tokens(
    logits_BWK: Tensor, config: DecodingConfig, generators: Sequence[torch.Generator]
) -> Tensor:
    """Draw a token of each row from the top k and top p, by the generator of its sentence. [B, W]"""
    assert config.temperature is not None
    top_k = logits_BWK.shape[2] if config.top_k is None else min(config.top_k, logits_BWK.shape[2])
    values_BWk, tokens_BWk = (logits_BWK / config.temperature).topk(top_k, dim=-1)
    cumulative_BWk = values_BWk.softmax(-1).cumsum(-1)
    if config.top_p is not None:
        before = cumulative_BWk.roll(1, -1)
        before[..., 0] = 0
        is_inside = before < config.top_p  # the token that reaches top_p is still in
        cumulative_BWk = cumulative_BWk.minimum((cumulative_BWk * is_inside).amax(-1, keepdim=True))
    width = logits_BWK.shape[1]
    uniform = torch.stack([torch.rand(width, generator=generator) for generator in generators])
    target_BW1 = uniform.to(logits_BWK.device)[..., None] * cumulative_BWk[..., -1:]
    index = (cumulative_BWk <= target_BW1).sum(-1, keepdim=True).clamp(max=top_k - 1)
    return tokens_BWk.gather(2, index).squeeze(2)

"""Hugging Face's MarianMTModel, given our weights and our positions, gives our logits."""

import os

import pytest
import torch
from torch import nn

import manyheads as mh
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.positions import sinusoidal_encoding
from support.strategies import randomize_weights

CONFIG = mh.TransformerConfig(vocab_size=50, layers=2, d_model=16, d_ff=24, heads=4, dropout=0.0)
PAD = 49


@pytest.fixture
def marian(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    import transformers

    c = CONFIG
    each_side = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("layers", c.encoder_layers), ("attention_heads", c.heads), ("ffn_dim", c.d_ff))
    }
    config = transformers.MarianConfig(  # type: ignore[call-arg]
        vocab_size=c.vocab_size,
        d_model=c.d_model,
        **each_side,
        activation_function="relu",
        scale_embedding=True,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=PAD,
        max_position_embeddings=32,
        attn_implementation="eager",  # type: ignore[call-arg]
    )
    return transformers.MarianMTModel(config).eval()


def copy_weights(ours: mh.Transformer, marian: nn.Module) -> None:
    def copy(mine: nn.Module, theirs: nn.Module) -> None:
        theirs.load_state_dict(mine.state_dict())

    def copy_attention(mine: MultiHeadAttention, theirs: nn.Module) -> None:
        for name in ("q", "k", "v"):
            copy(getattr(mine, f"w_{name}"), getattr(theirs, f"{name}_proj"))
        copy(mine.w_o, theirs.out_proj)

    copy(ours.source_embedding, marian.model.shared)
    for stack in (marian.model.encoder, marian.model.decoder):
        table = sinusoidal_encoding(torch.arange(32), ours.config.d_model)
        stack.embed_positions.weight = nn.Parameter(table.to(marian.dtype), requires_grad=False)
    for side in ("encoder", "decoder"):
        for mine, theirs in zip(getattr(ours, side), getattr(marian.model, side).layers, strict=True):
            copy_attention(mine.self_attention, theirs.self_attn)
            copy(mine.self_attention_residual.norm, theirs.self_attn_layer_norm)
            if side == "decoder":
                copy_attention(mine.cross_attention, theirs.encoder_attn)
                copy(mine.cross_attention_residual.norm, theirs.encoder_attn_layer_norm)
            copy(mine.feed_forward.w_1, theirs.fc1)
            copy(mine.feed_forward.w_2, theirs.fc2)
            copy(mine.feed_forward_residual.norm, theirs.final_layer_norm)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_same_weights_same_logits(marian: nn.Module, dtype: torch.dtype, tolerance: float) -> None:
    ours = mh.Transformer(CONFIG).to(dtype).eval()
    randomize_weights(ours)
    marian = marian.to(dtype)
    copy_weights(ours, marian)
    source, target = mh.Packed.of([[3, 4, 5, 2], [6, 2]]), mh.Packed.of([[1, 7], [1, 8, 9, 10]])

    def padded(text: mh.Packed) -> tuple[torch.Tensor, torch.Tensor]:
        real = torch.arange(text.max_length)[None] < text.lengths[:, None]
        return text.pad(text.tokens).masked_fill(~real, PAD), real.long()

    source_ids, source_mask = padded(source)
    target_ids, target_mask = padded(target)
    with torch.no_grad():
        judged = marian(
            input_ids=source_ids,
            attention_mask=source_mask,
            decoder_input_ids=target_ids,
            decoder_attention_mask=target_mask,
        ).logits
        torch.testing.assert_close(ours(source, target), target.unpad(judged), atol=tolerance, rtol=tolerance)

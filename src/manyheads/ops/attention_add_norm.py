"""LayerNorm(x + Dropout(MultiHead(x, M, M))): an attention sublayer (3.1, 3.2.2), where kernels serve it.

Shapes: T tokens of x, S of the memory M, D = d_model.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from manyheads.ops.attention import attention_bounds, check_sentences
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.split import concat
from manyheads.packed import Packed


def attention_add_norm(
    x_TD: Tensor,
    memory_SD: Tensor | None,
    projections: Sequence[nn.Linear],
    output: nn.Linear,
    heads: int,
    queries: Packed,
    keys: Packed,
    spec: AttentionSpec,
    norm: nn.LayerNorm,
    dropout: nn.Dropout,
) -> Tensor:
    """Return the sublayer's output where `dispatch.fuse_attention` holds. [T, D]

    `projections` are those of queries, keys and values. Without a memory, keys and values are of x too.
    """
    from manyheads.ops import attention_add_norm_triton

    check_sentences(queries, keys, spec)
    query, key, value = projections
    groups = [[query, key, value]] if memory_SD is None else [[query], [key, value]]
    return attention_add_norm_triton.attention_add_norm(
        x_TD,
        memory_SD,
        [
            (concat([layer.weight for layer in group]), concat([layer.bias for layer in group]))
            for group in groups
        ],
        (output.weight, output.bias),
        (norm.weight, norm.bias),
        attention_add_norm_triton.SublayerSpec(
            heads=heads,
            widths=(key.out_features, value.out_features),
            scale=spec.scale(key.out_features // heads),
            bounds=attention_bounds(queries, keys, spec),
            eps=norm.eps,
            dropout=dropout.p if dropout.training else 0.0,
        ),
    )

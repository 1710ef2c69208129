"""Parameter counts by the paper's formulas, and the table of them that the test report ends with."""

import manyheads as mh
from manyheads.model import count_parameters


def count_by_formula(config: mh.TransformerConfig) -> int:
    """Section 3 added up, with biases on every projection but the last, which is the embedding itself."""
    d_model, d_ff, heads = config.d_model, config.d_ff, config.heads
    into_heads = heads * (2 * config.head_dim_k + config.head_dim_v)
    attention = (d_model + 1) * into_heads + (heads * config.head_dim_v + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norm = 2 * d_model
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    learned = 2 * config.max_positions * d_model if config.positions == "learned" else 0
    return (
        config.vocab_size * d_model
        + config.encoder_layers * encoder
        + config.decoder_layers * decoder
        + learned
    )


def format_table() -> str:
    lines = [f"{'Table 3 row':12} {'ours':>12} {'paper':>8} {'difference':>11}"]
    for row in mh.presets.TABLE_3:
        ours = count_parameters(row.model)["total"]
        paper, difference = "-", "-"
        if row.paper_millions:
            paper, difference = f"{row.paper_millions}M", f"{ours / 1e6 - row.paper_millions:+.1f}M"
        lines.append(f"{row.name:12} {ours:12,} {paper:>8} {difference:>11}")
    return "\n".join(lines)

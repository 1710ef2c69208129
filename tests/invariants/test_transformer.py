import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import manyheads as mh
from manyheads.model import count_parameters
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.initialization import init_weights
from manyheads.model.layers import Dropout
from manyheads.ops import dispatch
from support.strategies import VOCAB_SIZE, build_test_model, sentence_pairs, sentences, transformer_configs

Texts = list[list[int]]
SMALL = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=2, d_model=8, d_ff=12, heads=2, dropout=0.0)


def assert_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@given(transformer_configs(), sentence_pairs(), st.data())
def test_future_tokens_cannot_change_the_past(
    config: mh.ModelConfig, texts: tuple[Texts, Texts], data: st.DataObject
) -> None:
    model, source = build_test_model(config), mh.Packed.of(texts[0])
    before = texts[1]
    kept = [data.draw(st.integers(0, len(text))) for text in before]
    ends = data.draw(sentences(count=len(before)))
    after = [text[:keep] + end for text, keep, end in zip(before, kept, ends, strict=True)]
    old, new = mh.Packed.of(before), mh.Packed.of(after)
    for a, b, keep in zip(old.split(model(source, old)), new.split(model(source, new)), kept, strict=True):
        assert_close(a[:keep], b[:keep])


@given(transformer_configs(), sentence_pairs())
def test_other_sentences_of_the_batch_change_nothing(
    config: mh.ModelConfig, texts: tuple[Texts, Texts]
) -> None:
    model = build_test_model(config)
    target = mh.Packed.of(texts[1])
    together = target.split(model(mh.Packed.of(texts[0]), target))
    for source, alone, logits in zip(*texts, together, strict=True):
        assert_close(model(mh.Packed.of([source]), mh.Packed.of([alone])), logits)


@given(transformer_configs(), sentence_pairs(), st.randoms(use_true_random=False))
def test_the_order_of_the_sentences_changes_nothing(
    config: mh.ModelConfig, texts: tuple[Texts, Texts], rng: random.Random
) -> None:
    model = build_test_model(config)
    order = list(range(len(texts[0])))
    rng.shuffle(order)
    sources, targets = ([side[i] for i in order] for side in texts)
    moved, first = mh.Packed.of(targets), mh.Packed.of(texts[1])
    as_given = first.split(model(mh.Packed.of(texts[0]), first))
    for index, logits in zip(order, moved.split(model(mh.Packed.of(sources), moved)), strict=True):
        assert_close(logits, as_given[index])


@given(transformer_configs(), sentence_pairs())
def test_an_upper_bound_as_max_length_changes_nothing(
    config: mh.ModelConfig, texts: tuple[Texts, Texts]
) -> None:
    model = build_test_model(config)
    source, target = map(mh.Packed.of, texts)
    loose = [replace(side, max_length=side.max_length + 3) for side in (source, target)]
    assert_close(model(*loose), model(source, target))


@given(transformer_configs(normalization="layer"), sentence_pairs())
def test_gradients_with_padded_attention_equal_those_of_the_reference(
    config: mh.ModelConfig, texts: tuple[Texts, Texts]
) -> None:
    model = build_test_model(config)
    source, target = map(mh.Packed.of, texts)
    results = {}
    for path in ("padded", "reference"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dispatch, "choose_attention", lambda *_, path=path: path)
            model.zero_grad()
            logits = model(source, target)
            logits.square().sum().backward()
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
        results[path] = [logits, *gradients]
    for fast, plain in zip(results["padded"], results["reference"], strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("path", ["padded", "reference"])
@given(config=transformer_configs(), texts=sentence_pairs())
def test_a_trace_changes_no_bit_and_holds_every_map(
    path: str, config: mh.ModelConfig, texts: tuple[Texts, Texts]
) -> None:
    model, trace = build_test_model(config), mh.Trace()
    source, target = map(mh.Packed.of, texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "choose_attention", lambda *_: path)
        assert torch.equal(model(source, target, trace=trace), model(source, target))
    for maps, layers, queries, keys in (
        (trace.encoder, config.encoder_layers, texts[0], texts[0]),
        (trace.decoder, config.decoder_layers, texts[1], texts[1]),
        (trace.cross, config.decoder_layers, texts[1], texts[0]),
    ):
        assert isinstance(config, mh.TransformerConfig)
        shapes = [(config.heads, len(q), len(k)) for q, k in zip(queries, keys, strict=True)]
        assert [[tuple(weights.shape) for weights in layer] for layer in maps] == [shapes] * layers


def test_a_trace_changes_no_bit_of_training_with_dropout() -> None:
    model = mh.Transformer(replace(SMALL, dropout=0.3, attention_dropout=0.2)).train()
    source, target = mh.Packed.of([[3, 4, 5], [6]]), mh.Packed.of([[1, 7], [1, 8, 9]])
    logits = []
    for trace in (None, mh.Trace()):
        torch.manual_seed(5)
        logits.append(model(source, target, trace=trace))
    assert torch.equal(*logits)


def test_a_reused_trace_holds_the_latest_call() -> None:
    model, trace = mh.Transformer(SMALL).eval(), mh.Trace()
    for target in ([[1]], [[1, 3, 4]]):
        model(mh.Packed.of([[5]]), mh.Packed.of(target), trace=trace)
    assert [len(maps) for maps in (trace.encoder, trace.decoder, trace.cross)] == [SMALL.decoder_layers] * 3
    assert trace.decoder[0][0].shape == (2, 3, 3)


def test_sources_and_targets_must_be_as_many() -> None:
    with pytest.raises(mh.DataError, match="3 target sentences, but 1 source sentences"):
        mh.Transformer(SMALL)(mh.Packed.of([[3]]), mh.Packed.of([[1], [1], [1]]))


@pytest.mark.parametrize("texts", [([], []), ([[]], [[]]), ([[], [3]], [[4], []]), ([[]], [[1, 2]])])
@pytest.mark.parametrize(("norm", "dropout"), [("post", 0.0), ("pre", 0.0), ("post", 0.5)])
def test_empty_sentences_and_empty_batches_are_legal(
    texts: tuple[Texts, Texts], norm: str, dropout: float
) -> None:
    model = mh.Transformer(replace(SMALL, norm=norm, dropout=dropout))
    source, target = map(mh.Packed.of, texts)
    logits = model(source, target)
    logits.square().sum().backward()
    assert logits.shape == (len(target.tokens), VOCAB_SIZE)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_output_of_hidden_equals_forward() -> None:
    model = mh.Transformer(SMALL)
    source, target = mh.Packed.of([[3, 4], [5]]), mh.Packed.of([[1, 6, 7], [1]])
    hidden = model.hidden(source, target)
    assert hidden.shape == (4, SMALL.d_model)
    assert torch.equal(model.output(hidden), model(source, target))


def test_dropout_applies_to_each_sublayer_and_to_the_embeddings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where everything is dropped, nothing of a sub-layer is left: LayerNorm(x + 0), and no embedding."""
    calls: list[tuple[int, ...]] = []

    def drop_all(self: Dropout, x: Tensor) -> Tensor:
        calls.append(tuple(x.shape))
        return torch.zeros_like(x)

    monkeypatch.setattr(Dropout, "forward", drop_all)
    model = mh.Transformer(SMALL)
    source, target, x = mh.Packed.of([[3, 4]]), mh.Packed.of([[1, 5, 6]]), torch.randn(3, SMALL.d_model)
    layer = model.decoder[0]
    nothing_but_norms = layer.feed_forward_residual.norm(
        layer.cross_attention_residual.norm(layer.self_attention_residual.norm(x))
    )
    assert torch.equal(layer(x, torch.randn(2, SMALL.d_model), target, source), nothing_but_norms)
    calls.clear()
    assert (model.hidden(source, target) == 0).all()
    encoder, decoder = [(2, SMALL.d_model)], [(3, SMALL.d_model)]
    assert calls == encoder * (1 + 2 * SMALL.decoder_layers) + decoder * (1 + 3 * SMALL.decoder_layers)


def test_dropout_zeroes_its_share_and_keeps_the_mean() -> None:
    dropped = Dropout(0.2).train()(torch.ones(100_000))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)
    assert torch.equal(Dropout(0.2).eval()(dropped), dropped)


@pytest.mark.parametrize(
    ("tie_embeddings", "embeddings_shared", "output_shared"),
    [("three-way", True, True), ("two-way", False, True), ("none", False, False)],
)
def test_tied_embeddings_share_one_matrix(
    tie_embeddings: str, embeddings_shared: bool, output_shared: bool
) -> None:
    model = mh.Transformer(replace(SMALL, tie_embeddings=tie_embeddings))
    assert (model.source_embedding.weight is model.target_embedding.weight) == embeddings_shared
    assert (model.output.weight is model.target_embedding.weight) == output_shared


def test_without_residuals_a_layer_is_its_sublayers_alone() -> None:
    layer = mh.Transformer(replace(SMALL, residuals=False)).encoder[0]
    text, x = mh.Packed.of([[3, 4, 5]]), torch.randn(3, SMALL.d_model)
    attended = layer.self_attention_residual.norm(layer.self_attention(x, x, text, text))
    expected = layer.feed_forward_residual.norm(layer.feed_forward(attended))
    assert torch.equal(layer(x, text), expected)


def test_a_window_holds_in_encoder_and_decoder_and_not_across() -> None:
    model, trace = mh.Transformer(replace(SMALL, window=3)).eval(), mh.Trace()
    text = mh.Packed.of([[3, 4, 5, 6, 7]])
    model(text, text, trace=trace)
    i, j = torch.arange(5)[:, None], torch.arange(5)
    near = (i - j).abs() <= 1
    for layer in range(SMALL.decoder_layers):
        assert torch.equal(trace.encoder[layer][0] > 0, near.expand(2, 5, 5))
        assert torch.equal(trace.decoder[layer][0] > 0, (near & (j <= i)).expand(2, 5, 5))
        assert (trace.cross[layer][0] > 0).all()


def test_dot_attention_with_scaled_queries_equals_scaled_dot_attention() -> None:
    scaled, plain = (
        mh.Transformer(replace(SMALL, attention=attention)).double() for attention in ("scaled-dot", "dot")
    )
    plain.load_state_dict(scaled.state_dict())
    source, target = mh.Packed.of([[3, 4, 5], [6]]), mh.Packed.of([[1, 7], [1, 8, 9]])
    assert (scaled(source, target) - plain(source, target)).abs().max() > 1e-3
    for module in plain.modules():
        if isinstance(module, MultiHeadAttention):
            module.w_q.weight.data /= SMALL.head_dim_k**0.5
            module.w_q.bias.data /= SMALL.head_dim_k**0.5
    assert_close(scaled(source, target), plain(source, target))


def test_attention_dropout_applies_in_training_only() -> None:
    model = mh.Transformer(replace(SMALL, attention_dropout=0.5))
    undropped = mh.Transformer(SMALL)
    undropped.load_state_dict(model.state_dict())
    source, target = mh.Packed.of([[3, 4, 5], [6]]), mh.Packed.of([[1, 7], [1, 8, 9]])
    assert not torch.equal(model(source, target), model(source, target))
    assert torch.equal(model.eval()(source, target), undropped(source, target))


def test_an_id_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(mh.DataError, match=f"token id 40, but the vocabulary has {VOCAB_SIZE}"):
        mh.Transformer(SMALL)(mh.Packed.of([[3, 40]]), mh.Packed.of([[1]]))


def test_dropout_saves_one_byte_per_element() -> None:
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.dtype) or x, lambda x: x):
        Dropout(0.5).train()(torch.ones(9, requires_grad=True))
    assert kept == [torch.bool]


@pytest.mark.parametrize("tie_embeddings", ["two-way", "none"])
def test_untied_languages_have_separate_vocabularies(tie_embeddings: str) -> None:
    model = mh.Transformer(
        replace(SMALL, tie_embeddings=tie_embeddings, source_vocab_size=20, target_vocab_size=30)
    )
    logits = model(mh.Packed.of([[19]]), mh.Packed.of([[29, 1]]))
    assert logits.shape == (2, 30)


@pytest.mark.parametrize("layers", [6, 12, 24])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_depth_is_configurable(layers: int, norm: str) -> None:
    model = mh.Transformer(replace(SMALL, layers=layers, norm=norm))
    assert model(mh.Packed.of([[3, 4]]), mh.Packed.of([[1]])).isfinite().all()


def test_sinusoids_are_unbounded_and_learned_positions_name_their_limit() -> None:
    long = mh.Packed.of([[3] * 3000])
    assert mh.Transformer(SMALL)(long, long).isfinite().all()
    learned = mh.Transformer(replace(SMALL, positions="learned", max_positions=10))
    assert learned(mh.Packed.of([[3] * 10]), mh.Packed.of([[1]])).isfinite().all()
    with pytest.raises(mh.DataError, match=r"up to 3000 tokens.*reach 10.*max_positions"):
        learned(long, long)


def test_without_positions_the_encoder_cannot_tell_the_order() -> None:
    model = build_test_model(replace(SMALL, positions="none"))
    forth, back = (model.encode(mh.Packed.of([text])).hidden for text in ([3, 4, 5], [5, 4, 3]))
    assert_close(forth, back.flip(0))


def test_batch_normalization_of_a_single_training_token_is_refused() -> None:
    model = mh.Transformer(replace(SMALL, normalization="batch"))
    with pytest.raises(mh.DataError, match="batch of 1 token"):
        model(mh.Packed.of([[3]]), mh.Packed.of([[1]]))


def test_initial_embeddings_have_unit_variance_once_scaled() -> None:
    model = mh.Transformer(mh.TransformerConfig(vocab_size=2000, layers=1, tie_embeddings="none"))
    for matrix in (model.source_embedding.weight, model.target_embedding.weight, model.output.weight):
        assert (matrix.std() * 512**0.5).item() == pytest.approx(1, abs=0.01)
    w_1 = model.encoder[0].feed_forward.w_1
    xavier = (6 / (512 + 2048)) ** 0.5
    assert w_1.weight.abs().max().item() == pytest.approx(model.config.init_gain * xavier, rel=0.01)
    assert (w_1.bias == 0).all()


def test_an_output_bias_starts_at_zero_and_is_counted() -> None:
    config = replace(SMALL, output_bias=True)
    assert (mh.Transformer(config).output.bias == 0).all()
    with_it, without = (count_parameters(model) for model in (config, SMALL))
    assert with_it["total"] - without["total"] == config.output_vocab_size
    assert with_it["embeddings_and_output"] - without["embeddings_and_output"] == config.output_vocab_size


def test_init_gain_scales_linear_maps_and_not_embeddings() -> None:
    torch.manual_seed(3)
    config = mh.TransformerConfig(vocab_size=20, layers=1, d_model=8, d_ff=16, heads=2)
    whole = mh.Transformer(replace(config, init_gain=1.0))
    torch.manual_seed(3)
    half = mh.Transformer(replace(config, init_gain=0.5))
    for (name, full), other in zip(whole.named_parameters(), half.parameters(), strict=True):
        is_unscaled = full.dim() == 1 or "embedding" in name
        assert torch.equal(other, full if is_unscaled else full / 2), name


def test_the_authors_initial_weights_are_those_of_torch() -> None:
    """torch.nn.MultiheadAttention initializes W_Q, W_K and W_V as one matrix, as tensor2tensor does."""
    torch.manual_seed(4)
    model = mh.Transformer(mh.TransformerConfig(vocab_size=20, layers=1, init="authors"))
    theirs = nn.MultiheadAttention(512, 8)
    for attention in (model.encoder[0].self_attention, model.decoder[0].cross_attention):
        for linear in (attention.w_q, attention.w_k, attention.w_v):
            bound = theirs.in_proj_weight.abs().max().item()
            assert linear.weight.abs().max().item() == pytest.approx(bound, rel=0.001)
        assert attention.w_o.weight.abs().max().item() == pytest.approx((6 / 1024) ** 0.5, rel=0.001)
    assert model.encoder[0].feed_forward.w_1.weight.abs().max().item() == pytest.approx(
        (6 / 2560) ** 0.5, rel=0.001
    )


def test_a_gain_beside_the_authors_initial_weights_is_refused() -> None:
    with pytest.raises(
        mh.ConfigError, match=r'init_gain is 1\.0, but model\.init = "authors" sets the scale'
    ):
        mh.TransformerConfig(init="authors", init_gain=1.0)


def test_every_weight_is_initialized_in_one_function() -> None:
    config = replace(SMALL, attention="additive", positions="learned", norm="pre", output_bias=True)
    model = mh.Transformer(config)
    for parameter in model.parameters():
        nn.init.constant_(parameter, torch.nan)
    init_weights(model)
    assert all(parameter.isfinite().all() for parameter in model.parameters())

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from support.incremental_decoding import check_random_search, full_forward
from support.strategies import VOCAB_SIZE, build_test_model, transformer_configs


@given(transformer_configs(), st.data())
def test_a_cached_step_equals_the_full_forward(config: mh.ModelConfig, data: st.DataObject) -> None:
    """Whatever a search does in between: reorder hypotheses, drop finished sentences, admit waiting ones."""
    check_random_search(build_test_model(config), data)


def test_sentences_that_started_at_different_steps_keep_their_lengths() -> None:
    """The oldest leaves, a newcomer stays: its rows must not take over what the old ones had read."""
    config = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=2, d_model=8, d_ff=8, heads=2, dropout=0.0)
    model, old, new = build_test_model(config), [3, 4, 5], [6]
    state = model.start(model.encode(mh.Packed.of([old])), beam=2)
    for token in (1, 7, 8):
        _, state = model.step(torch.tensor([token, token]), state)
    state = state.append(model.encode(mh.Packed.of([new])))
    _, state = model.step(torch.tensor([9, 9, 1, 1]), state)
    state = state.remove(torch.tensor([0]))
    logits, state = model.step(torch.tensor([3, 4]), state)
    assert state.lengths.tolist() == [2, 2]
    expected = full_forward(model, [new, new], [[1, 3], [1, 4]])
    torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("positions", ["sinusoid", "learned"])
def test_a_cache_whose_sentences_are_replaced_does_not_grow(positions: str) -> None:
    config = mh.TransformerConfig(
        vocab_size=VOCAB_SIZE, layers=1, d_model=8, d_ff=8, heads=2, positions=positions, max_positions=4
    )
    model = build_test_model(config)
    state = model.start(model.encode(mh.Packed.of([[3, 4, 5, 6]])), beam=2)
    for _ in range(40):
        _, state = model.step(torch.tensor([1, 1]), state)
        state = state.remove(torch.tensor([0])).append(model.encode(mh.Packed.of([[3]])))
    assert state.max_length == 0
    assert state.past_keys.shape[3] <= 1
    assert state.source_keys.shape[3] == 1


def test_wrong_calls_are_refused() -> None:
    config = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=1, d_model=8, d_ff=8, heads=2)
    model = build_test_model(config)
    memory = model.encode(mh.Packed.of([[3], [4]]))
    with pytest.raises(mh.RequestError, match="0 hypotheses a sentence, but there must be at least 1"):
        model.start(memory, beam=0)
    for tokens in ([1], [1, 1, 1]):
        with pytest.raises(mh.RequestError, match=f"{len(tokens)} tokens, but the state has 4 rows"):
            model.step(torch.tensor(tokens), model.start(memory, beam=2))
    with pytest.raises(mh.RequestError, match="3 rows to reorder, but the state has 4"):
        model.start(memory, beam=2).reorder(torch.tensor([0, 1, 2]))


def test_decoding_under_autocast_follows_the_full_forward() -> None:
    config = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=2, d_model=8, d_ff=8, heads=2, dropout=0.0)
    model = mh.Transformer(config).eval()
    source, tokens = mh.Packed.of([[3, 4]]), [1, 5, 6]
    state = model.start(model.encode(source))  # in float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for token in tokens:
            logits, state = model.step(torch.tensor([token]), state)
    expected = model(source, mh.Packed.of([tokens]))[-1:]
    torch.testing.assert_close(logits.float(), expected, atol=0.05, rtol=0.05)


def test_a_long_decoding_grows_its_cache() -> None:
    config = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=2, d_model=8, d_ff=8, heads=2, dropout=0.0)
    model, tokens = build_test_model(config), [token % VOCAB_SIZE for token in range(100)]
    source, target = mh.Packed.of([[3, 4]]), mh.Packed.of([tokens])
    state = model.start(model.encode(source))
    logits = []
    for token in tokens:
        step_logits, state = model.step(torch.tensor([token]), state)
        logits.append(step_logits)
    torch.testing.assert_close(torch.cat(logits), model(source, target), atol=1e-9, rtol=1e-9)


def test_source_keys_are_computed_once_per_sentence_and_shared() -> None:
    config = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=2, d_model=8, d_ff=8, heads=2, dropout=0.0)
    model = build_test_model(config)
    calls = []
    model.decoder[0].cross_attention.w_k.register_forward_hook(lambda *_: calls.append(1))
    state = model.start(model.encode(mh.Packed.of([[3, 4], [5, 6, 7]])), beam=4)
    for _ in range(3):
        _, state = model.step(torch.tensor([1] * 8), state)
    state = state.reorder(torch.arange(8))
    assert len(calls) == 1
    assert state.source_keys.shape == (2, 2, 2, 3, 4)  # layers, sentences (not rows), heads, source, d_k


def test_an_empty_batch_can_be_decoded() -> None:
    config = mh.TransformerConfig(vocab_size=VOCAB_SIZE, layers=1, d_model=8, d_ff=8, heads=2)
    model = build_test_model(config)
    state = model.start(model.encode(mh.Packed.of([])), beam=2)
    logits, state = model.step(torch.tensor([], dtype=torch.int64), state)
    assert logits.shape == (0, VOCAB_SIZE)
    state = state.append(model.encode(mh.Packed.of([[3, 4]])))
    logits, state = model.step(torch.tensor([1, 1]), state)
    assert logits.shape == (2, VOCAB_SIZE)


def test_decoding_past_learned_positions_is_refused() -> None:
    config = mh.TransformerConfig(
        vocab_size=VOCAB_SIZE, layers=1, d_model=8, d_ff=8, heads=2, positions="learned", max_positions=2
    )
    model = build_test_model(config)
    state = model.start(model.encode(mh.Packed.of([[3]])))
    for _ in range(2):
        _, state = model.step(torch.tensor([1]), state)
    with pytest.raises(mh.DataError, match="learned positions reach 2"):
        model.step(torch.tensor([1]), state)

"""The attention data of a sentence equal those of the model."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads.look import attention_data, colors
from manyheads.look.attention_data import build_attention_data, merge_tokens
from manyheads.look.training_walk import compare_checkpoints, select_evenly
from manyheads.look.words import get_word_ids, tokens_to_words


def decode_map(text: str, rows: int) -> np.ndarray:
    return (np.frombuffer(base64.b64decode(text), "<u2") / 65535).reshape(rows, -1)


def test_every_map_equals_that_of_the_trace(attention: mh.AttentionMaps) -> None:
    data = build_attention_data(attention)
    assert json.loads(json.dumps(data, allow_nan=False)) == {
        **data,
        "sides": {attention_type: list(sides) for attention_type, sides in data["sides"].items()},
    }
    for attention_type in ("encoder", "decoder", "cross"):
        layers = getattr(attention.trace, attention_type)
        for layer, heads in enumerate(layers):
            for head, expected in enumerate(heads[0]):
                decoded = decode_map(data["snapshots"][0]["maps"][attention_type][layer][head], len(expected))
                np.testing.assert_allclose(decoded, expected, atol=0.5 / 65535 + 1e-7)
        rows, columns = (len(data["tokens"][side]) for side in data["sides"][attention_type])
        assert layers[0][0].shape == (4, rows, columns)


def test_the_decoder_input_is_the_target_shifted_right(attention: mh.AttentionMaps) -> None:
    tokens = build_attention_data(attention)["tokens"]
    assert tokens["target"] == attention.target_tokens
    assert tokens["decoder_input"] == ["<s>", *attention.target_tokens[:-1]]


def test_candidates_are_the_most_probable_tokens_of_each_step(
    model: Path, attention: mh.AttentionMaps
) -> None:
    translator = mh.load(model, device="cpu")
    scored = translator.score(["I go home today."], ["나는 오늘 집에 간다."])[0]
    assert attention.token_scores[:-1] == pytest.approx(scored.token_scores, abs=1e-5)
    assert sum(attention.token_scores) == pytest.approx(scored.log_probability, abs=1e-4)
    for step, chosen, score in zip(
        attention.candidates, attention.target_tokens, attention.token_scores, strict=True
    ):
        values = [value for _, value in step]
        assert len(step) == 10
        assert values == sorted(values, reverse=True)
        assert dict(step).get(chosen, score) == pytest.approx(score)
    snapshot = build_attention_data(attention)["snapshots"][0]
    assert snapshot["candidates"][0][0][1] == pytest.approx(np.exp(attention.candidates[0][0][1]), rel=1e-4)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["▁I", "▁go", "▁ho", "me", ".", "</s>"], ["I", "go", "home", ".", "</s>"]),
        (["<s>", "▁나", "는", "▁집에", "▁간다", "."], ["<s>", "나는", "집에", "간다", "."]),
        (["▁Mina", "'", "s", "▁well", "-", "being", "</s>"], ["Mina's", "well-being", "</s>"]),
        (["▁", "<0xEA>", "<0xB0>", "<0x80>", "나", "</s>"], ["가나", "</s>"]),
        (["▁(", "a", ")", "▁b", "</s>"], ["(", "a", ")", "b", "</s>"]),
        (["▁<b>", "x", "▁", "</s>"], ["<b>x", "␣", "</s>"]),
        (["</s>"], ["</s>"]),
    ],
)
def test_tokens_are_joined_to_words(tokens: list[str], words: list[str]) -> None:
    assert tokens_to_words(tokens) == words
    assert len(set(get_word_ids(tokens))) == len(words)


def test_merging_averages_over_queries_and_sums_over_keys() -> None:
    tokens = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0, 0.4, 0.6]], dtype=np.float32)
    merged = merge_tokens(tokens, [0, 0, 1], [0, 1, 1])
    np.testing.assert_allclose(merged, [[0.3, 0.7], [0, 1]], atol=1e-6)


def test_a_query_without_keys_has_zero_weights(attention: mh.AttentionMaps) -> None:
    blind = torch.full_like(attention.trace.encoder[0][0], float("nan"))
    trace = mh.Trace([[blind], attention.trace.encoder[1]], attention.trace.decoder, attention.trace.cross)
    data = build_attention_data(replace(attention, trace=trace))
    assert set(base64.b64decode(data["snapshots"][0]["maps"]["encoder"][0][0])) == {0}


def test_a_sentence_without_words_has_attention_data(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    for source, target in (("...", ""), ("", "")):
        data = build_attention_data(translator.attention(source, target))
        json.dumps(data, allow_nan=False)
        assert data["tokens"]["decoder_input"] == ["<s>"]
        assert data["snapshots"][0]["figure_heads"]["encoder"]["long"] == []
        assert data["snapshots"][0]["measures"]["decoder"]["words"][0][0] == [0, 0, 1, None, 1]


def test_more_weights_than_a_page_holds_are_an_error(
    attention: mh.AttentionMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_data, "MAX_WEIGHTS", 100)
    with pytest.raises(mh.RequestError, match=r"attention weights, but the maximum is 100: use a short"):
        build_attention_data(attention)


def test_the_limit_counts_all_snapshots_before_any_is_built(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (snapshot,) = compare_checkpoints(run, "I go.", "I.", max_checkpoints=2)["snapshots"][:1]
    weights = sum(
        len(base64.b64decode(head)) // 2
        for layers in snapshot["maps"].values()
        for layer in layers
        for head in layer
    )
    monkeypatch.setattr(attention_data, "MAX_WEIGHTS", 3 * weights - 1)
    monkeypatch.setattr(attention_data, "stack_maps", lambda *_: pytest.fail("a snapshot was built"))
    with pytest.raises(mh.RequestError, match=f"^the page would have {3 * weights:,} attention weights"):
        compare_checkpoints(run, "I go.", "I.")


def test_colors_differ_and_are_visible_on_white_and_black() -> None:
    palette = colors.head_colors(16)
    assert len(set(palette)) == 16
    for color in palette:
        channels = tuple(int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))
        luminance = colors.relative_luminance(channels)
        assert 1.05 / (luminance + 0.05) > 3
        assert (luminance + 0.05) / 0.05 > 3


def test_every_checkpoint_has_a_snapshot_of_the_same_sentence(run: Path) -> None:
    data = compare_checkpoints(run, "I go home.", device="cpu")
    assert [snapshot["step"] for snapshot in data["snapshots"]] == [10, 20, 30]
    newest = mh.load(run / "checkpoints" / "step-00000030", device="cpu")
    assert data["text"]["target"] == newest.translate("I go home.", split=False, beam=1).text
    for snapshot in data["snapshots"]:
        translator = mh.load(run / "checkpoints" / snapshot["name"], device="cpu")
        expected = translator.attention("I go home.", data["text"]["target"])
        decoded = decode_map(snapshot["maps"]["cross"][1][3], len(expected.target_tokens))
        np.testing.assert_allclose(decoded, expected.trace.cross[1][0][3], atol=1e-5)


def test_checkpoints_are_selected_evenly_from_first_to_last() -> None:
    folders = [Path(str(n)) for n in range(101)]
    assert [int(str(folder)) for folder in select_evenly(folders, 5)] == [0, 25, 50, 75, 100]
    assert select_evenly(folders[:3], 5) == folders[:3]


def test_a_folder_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(mh.CheckpointError, match="has no checkpoints; give the folder of a training run"):
        compare_checkpoints(tmp_path, "I go home.")


def test_encoder_and_decoder_can_have_different_depths(attention: mh.AttentionMaps) -> None:
    trace = mh.Trace(attention.trace.encoder, attention.trace.decoder[:1], attention.trace.cross[:1])
    data = build_attention_data(replace(attention, trace=trace))
    assert data["layers"] == {"encoder": 2, "decoder": 1, "cross": 1}

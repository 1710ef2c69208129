"""What is written down of a sentence's attention is the model's own."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads.look import attention_data as maps
from manyheads.look.attention_data import build_attention_data, get_word_ids, merge_tokens, tokens_to_words
from manyheads.look.training_walk import compare_checkpoints, select_evenly


def decoded(text: str, rows: int) -> np.ndarray:
    return (np.frombuffer(base64.b64decode(text), "<u2") / 65535).reshape(rows, -1)


def test_every_map_is_that_of_the_trace(attention: mh.Attention) -> None:
    data = build_attention_data(attention)
    assert json.loads(json.dumps(data, allow_nan=False)) == {
        **data,
        "sides": {kind: list(sides) for kind, sides in data["sides"].items()},
    }
    for kind in ("encoder", "decoder", "cross"):
        layers = getattr(attention.trace, kind)
        for layer, heads in enumerate(layers):
            for head, expected in enumerate(heads[0]):
                found = decoded(data["moments"][0]["maps"][kind][layer][head], len(expected))
                np.testing.assert_allclose(found, expected, atol=0.5 / 65535 + 1e-7)
        rows, columns = (len(data["tokens"][side]) for side in data["sides"][kind])
        assert layers[0][0].shape == (4, rows, columns)


def test_the_decoder_reads_what_it_wrote_one_step_before(attention: mh.Attention) -> None:
    tokens = build_attention_data(attention)["tokens"]
    assert tokens["written"] == attention.target_tokens
    assert tokens["read"] == ["<s>", *attention.target_tokens[:-1]]


def test_candidates_are_the_likeliest_words_of_each_step(model: Path, attention: mh.Attention) -> None:
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
    moment = build_attention_data(attention)["moments"][0]
    assert moment["candidates"][0][0][1] == pytest.approx(np.exp(attention.candidates[0][0][1]), rel=1e-4)


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
def test_words_are_put_together_again(tokens: list[str], words: list[str]) -> None:
    assert tokens_to_words(tokens) == words
    assert len(set(get_word_ids(tokens))) == len(words)


def test_words_give_what_their_tokens_give_on_average_and_get_what_they_get_together() -> None:
    tokens = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0, 0.4, 0.6]], dtype=np.float32)
    found = merge_tokens(tokens, [0, 0, 1], [0, 1, 1])
    np.testing.assert_allclose(found, [[0.3, 0.7], [0, 1]], atol=1e-6)


def test_a_token_that_sees_nothing_looks_at_nothing(attention: mh.Attention) -> None:
    blind = torch.full_like(attention.trace.encoder[0][0], float("nan"))
    trace = mh.Trace([[blind], attention.trace.encoder[1]], attention.trace.decoder, attention.trace.cross)
    data = build_attention_data(replace(attention, trace=trace))
    assert set(base64.b64decode(data["moments"][0]["maps"]["encoder"][0][0])) == {0}


def test_a_sentence_without_a_word_can_be_looked_at_too(model: Path) -> None:
    translator = mh.load(model, device="cpu")
    for source, target in (("...", ""), ("", "")):
        data = build_attention_data(translator.attention(source, target))
        json.dumps(data, allow_nan=False)
        assert data["tokens"]["read"] == ["<s>"]
        assert data["moments"][0]["like"]["encoder"]["long"] == []
        assert data["moments"][0]["measures"]["decoder"]["words"][0][0] == [0, 0, 1, None, 1]


def test_more_than_a_page_can_hold_is_refused(
    attention: mh.Attention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "MOST_WEIGHTS", 100)
    with pytest.raises(
        mh.RequestError, match=r"attention weights, but a page holds at most 100: give a short"
    ):
        build_attention_data(attention)


def test_a_page_holds_all_moments_together_and_none_is_made_in_vain(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = compare_checkpoints(run, "I go.", "I.", max_checkpoints=2)["moments"][:1]
    weights = sum(
        len(base64.b64decode(head)) // 2 for kind in one["maps"].values() for layer in kind for head in layer
    )
    monkeypatch.setattr(maps, "MOST_WEIGHTS", 3 * weights - 1)
    monkeypatch.setattr(maps, "stacked", lambda *_: pytest.fail("a moment was made"))
    with pytest.raises(mh.RequestError, match=f"^{3 * weights:,} attention weights"):
        compare_checkpoints(run, "I go.", "I.")


def test_colors_differ_and_can_be_seen_on_white_and_on_black() -> None:
    found = maps.head_colors(16)
    assert len(set(found)) == 16
    for one in found:
        shade = tuple(int(one[n : n + 2], 16) / 255 for n in (1, 3, 5))
        light = maps.relative_luminance(shade)
        assert 1.05 / (light + 0.05) > 3
        assert (light + 0.05) / 0.05 > 3


def test_through_training_shows_the_same_sentence_at_every_checkpoint(run: Path) -> None:
    data = compare_checkpoints(run, "I go home.", device="cpu")
    assert [moment["step"] for moment in data["moments"]] == [10, 20, 30]
    newest = mh.load(run / "checkpoints" / "step-00000030", device="cpu")
    assert data["text"]["target"] == newest.translate("I go home.", split=False, beam=1).text
    for moment in data["moments"]:
        translator = mh.load(run / "checkpoints" / moment["name"], device="cpu")
        expected = translator.attention("I go home.", data["text"]["target"])
        found = decoded(moment["maps"]["cross"][1][3], len(expected.target_tokens))
        np.testing.assert_allclose(found, expected.trace.cross[1][0][3], atol=1e-5)


def test_checkpoints_are_spread_evenly_from_the_first_to_the_last() -> None:
    folders = [Path(str(n)) for n in range(101)]
    assert [int(str(one)) for one in select_evenly(folders, 5)] == [0, 25, 50, 75, 100]
    assert select_evenly(folders[:3], 5) == folders[:3]


def test_a_folder_without_checkpoints_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(mh.CheckpointError, match="no run with checkpoints"):
        compare_checkpoints(tmp_path, "I go home.")

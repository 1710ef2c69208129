"""CTranslate2, given our weights, gives our scores and n-best lists; what it cannot do is refused by name."""

import errno
import json
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, SubwordConfig
from manyheads.export.ctranslate2 import to_ctranslate2
from manyheads.inference import ctranslate2_engine as engine_room
from manyheads.inference.ctranslate2_engine import CTranslate2Engine, convert, ensure_converted
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.beam import DecodingConstraints, Hypothesis, length_penalty, search
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights

TEXT = ["the cat sat on the mat", "a dog ran home to sleep", "we go by sea and by land"] * 5
SMALL = SubwordTokenizer.train(TEXT, SubwordConfig(vocab_size=30, byte_fallback=False))
OTHER = SubwordTokenizer.train(TEXT, SubwordConfig(vocab_size=33, byte_fallback=False))
CONFIG = mh.TransformerConfig(vocab_size=30, layers=2, d_model=16, d_ff=24, heads=4, dropout=0.0)
FAR = 60  # a limit that nothing here reaches
DecodingConfig = mh.DecodingConfig


def save(folder: Path, model: mh.Transformer) -> Path:
    apart = model.config.input_vocab_size != model.config.output_vocab_size
    pair = SubwordPair(OTHER, SMALL) if apart else SubwordPair(SMALL, SMALL)
    told: dict[str, Any] = {"step": 1, "languages": {"source": "en", "target": "ko"}}
    config = mh.Config(model=model.config)
    checkpoint.save(folder, checkpoint.collect_weights(model), pair, config, **told)
    return folder


def stirred(config: mh.ModelConfig) -> mh.Transformer:
    model = mh.Transformer(config).eval()
    randomize_weights(model)
    return model


def draw_sources(count: int, size: int = 30, longest: int = 8) -> list[list[int]]:
    chance = random.Random(5)
    words = range(NUM_SPECIAL_TOKENS, size)
    return [[*chance.choices(words, k=chance.randint(1, longest)), EOS_ID] for _ in range(count)]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, mh.Transformer]:
    """A model that has begun to learn to copy: it ends by itself, and is sure of nothing."""
    torch.manual_seed(0)
    chance = random.Random(0)
    model = mh.Transformer(replace(CONFIG, d_model=32, d_ff=64, layers=1))
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(120):
        texts = [chance.choices(range(3, 30), k=chance.randint(1, 8)) for _ in range(32)]
        source, labels = (mh.Packed.of([[*text, EOS_ID] for text in texts]) for _ in range(2))
        logits = model(source, mh.Packed.of([[BOS_ID, *text] for text in texts]))
        loss = F.cross_entropy(logits, labels.tokens)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return save(tmp_path_factory.mktemp("learned") / "model", model.eval()), model


@pytest.fixture(scope="module")
def engine(learned: tuple[Path, mh.Transformer]) -> CTranslate2Engine:
    return CTranslate2Engine(learned[0], threads=1)


OurSearch = Callable[[list[list[int]], list[DecodingConstraints], mh.DecodingConfig], list[list[Hypothesis]]]


@pytest.fixture(scope="module")
def ours(learned: tuple[Path, mh.Transformer]) -> OurSearch:
    model = learned[1]

    def run(
        sources: list[list[int]], wishes: list[DecodingConstraints], how: mh.DecodingConfig
    ) -> list[list[Hypothesis]]:
        def begin(numbers: list[int], state: Any) -> Any:
            memory = model.encode(mh.Packed.of([sources[number] for number in numbers]))
            return model.start(memory, how.num_hypotheses) if state is None else state.append(memory)

        return search(model.step, begin, wishes, how, torch.device("cpu"))

    return run


def texts(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[one.tokens for one in some] for some in found]


def scores(found: list[list[Hypothesis]]) -> list[float]:
    return [one.score for some in found for one in some]


def forced(learned: tuple[Path, mh.Transformer], source: list[int], tokens: list[int]) -> float:
    return sum(TorchEngine(learned[1]).score([source], [tokens])[0])


# ---- the same model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "activation": "gelu"},
        {"tie_embeddings": "two-way", "source_vocab_size": 33, "target_vocab_size": 30},
        {"tie_embeddings": "none", "source_vocab_size": 33, "target_vocab_size": 30, "norm": "pre"},
        {"tie_embeddings": "none"},
        {"attention": "dot", "d_k": 4, "d_v": 4},
        {"positions": "learned", "max_positions": 12},
        {"positions": "none", "d_model": 15, "heads": 3},
        {"activation": "swish"},
        {"output_bias": True},
    ],
    ids=str,
)
def test_forced_decoding_gives_our_scores(tmp_path: Path, changes: dict[str, Any]) -> None:
    try:
        config = replace(CONFIG, **changes)
    except mh.ConfigError:
        pytest.skip("this version's models have no such key")
    model = stirred(config)
    judge = CTranslate2Engine(save(tmp_path / "model", model), threads=1)
    sources = [*draw_sources(9, config.input_vocab_size), [EOS_ID]]
    targets = [source[:-1] for source in draw_sources(9)[::-1]] + [[]]
    for theirs, mine in zip(
        judge.score(sources, targets), TorchEngine(model).score(sources, targets), strict=True
    ):
        assert theirs == pytest.approx(mine, abs=1e-4)


def test_pieces_that_are_alike_or_missing_get_texts_of_their_own() -> None:
    class Alike:
        def __len__(self) -> int:
            return 5

        def piece(self, one: int) -> str:
            return ["<unk>", "<s>", "</s>", "a", "a"][one]

    pieces = engine_room.unique_pieces(Alike(), 7)  # type: ignore[arg-type]
    assert pieces[:4] == ["<unk>", "<s>", "</s>", "a"]
    assert len(set(pieces)) == 7


# ---- the same search, where the objective is the same


def test_at_alpha_0_the_n_best_lists_are_ours(engine: CTranslate2Engine, ours: OurSearch) -> None:
    sources, how = draw_sources(40), DecodingConfig(beam=4, alpha=0.0, nbest=4)
    wishes = [DecodingConstraints(FAR)] * len(sources)
    found, expected = engine.search(sources, wishes, how), ours(sources, wishes, how)
    assert texts(found) == texts(expected)
    assert scores(found) == pytest.approx(scores(expected), abs=1e-4)
    best = engine.search(sources, wishes, replace(how, nbest=1))
    assert texts(best) == [some[:1] for some in texts(expected)]


def test_greedy_search_is_ours(engine: CTranslate2Engine, ours: OurSearch) -> None:
    """Also where the limit ends it, or a prefix, a least length or something forbidden bends it."""
    sources, how = draw_sources(40), DecodingConfig(beam=1)
    plain = [some[0].tokens for some in ours(sources, [DecodingConstraints(FAR)] * 40, how)]
    for wishes, changes in (
        ([DecodingConstraints(FAR)] * 40, {}),
        ([DecodingConstraints(number % 5) for number in range(40)], {}),
        ([DecodingConstraints(FAR, min_length=9)] * 40, {}),
        ([DecodingConstraints(7, min_length=7)] * 40, {}),
        ([DecodingConstraints(FAR, prefix=(5, 9)[: number % 3]) for number in range(40)], {}),
        ([DecodingConstraints(1, prefix=(5, 9, 4))] * 40, {}),
        (
            [
                DecodingConstraints(FAR, forbidden_phrases=(tuple(tokens[:2]),) if tokens else ())
                for tokens in plain
            ],
            {},
        ),
        ([DecodingConstraints(FAR, forbidden_phrases=((7,), (9, 10)))] * 40, {}),
        ([DecodingConstraints(FAR)] * 40, {"no_repeat_ngram": 1}),
        ([DecodingConstraints(FAR)] * 40, {"no_repeat_ngram": 2}),
    ):
        asked = replace(how, **changes)
        found, expected = engine.search(sources, wishes, asked), ours(sources, wishes, asked)
        assert texts(found) == texts(expected)
        assert scores(found) == pytest.approx(scores(expected), abs=1e-4)


def test_a_result_does_not_depend_on_what_else_is_asked(engine: CTranslate2Engine) -> None:
    sources = draw_sources(24)
    wishes = [
        DecodingConstraints(FAR),
        DecodingConstraints(3),
        DecodingConstraints(70, prefix=(5,)),
        DecodingConstraints(20, forbidden_phrases=((6,),)),
        DecodingConstraints(200, min_length=4),
    ] * 5
    for how in (DecodingConfig(beam=1), DecodingConfig(beam=4, nbest=2), DecodingConfig(beam=3, alpha=0.0)):
        together = engine.search(sources, wishes[:24], how)
        alone = [engine.search([s], [w], how)[0] for s, w in zip(sources, wishes, strict=False)]
        assert texts(together) == texts(alone)
        assert scores(together) == pytest.approx(scores(alone), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.6, 2.0])
def test_its_n_best_are_ranked_by_our_formula(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, alpha: float
) -> None:
    sources, how = draw_sources(40), DecodingConfig(beam=4, alpha=alpha, nbest=4)
    wishes = [DecodingConstraints(FAR)] * 40
    for source, some in zip(sources, engine.search(sources, wishes, how), strict=True):
        assert len(some) == 4
        for one in some:
            total = forced(learned, source, one.tokens)
            assert one.log_probability == pytest.approx(total, abs=1e-4)
            assert one.score == pytest.approx(total / length_penalty(len(one.tokens) + 1, alpha), abs=1e-4)
        assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)


def test_ours_is_not_its_own_order(engine: CTranslate2Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would show nothing: its L^alpha favors longer ones more than ours."""
    sources, how = draw_sources(40), DecodingConfig(beam=4, alpha=2.0, nbest=4)
    ranked = engine.search(sources, [DecodingConstraints(FAR)] * 40, how)
    monkeypatch.setattr(engine_room, "penalty", lambda length, alpha: length**alpha)
    assert texts(engine.search(sources, [DecodingConstraints(FAR)] * 40, how)) != texts(ranked)


# ---- limits, scores


@pytest.mark.parametrize("beam", [1, 4])
def test_what_is_cut_or_bent_has_the_score_of_forced_decoding(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, beam: int
) -> None:
    sources, how = draw_sources(20), DecodingConfig(beam=beam, nbest=beam, alpha=0.6)
    for wish in (
        DecodingConstraints(2),
        DecodingConstraints(0),
        DecodingConstraints(9, min_length=9),
        DecodingConstraints(FAR, prefix=(5, 9)),
        DecodingConstraints(FAR, forbidden_phrases=((7,),)),
        DecodingConstraints(2, prefix=(4, 5, 6)),
    ):
        for source, some in zip(sources, engine.search(sources, [wish] * 20, how), strict=True):
            assert some
            for one in some:
                assert wish.min_length <= len(one.tokens) <= wish.max_length
                assert tuple(one.tokens[: len(wish.prefix)]) == wish.prefix[: wish.max_length]
                assert not {(token,) for token in one.tokens} & set(wish.forbidden_phrases)
                assert one.log_probability == pytest.approx(forced(learned, source, one.tokens), abs=1e-4)


def test_a_beam_wider_than_the_vocabulary_finds_what_ours_finds(
    engine: CTranslate2Engine, ours: OurSearch
) -> None:
    sources, how = draw_sources(8, longest=3), DecodingConfig(beam=20, alpha=0.0, nbest=5)
    wishes = [DecodingConstraints(FAR)] * 8
    assert texts(engine.search(sources, wishes, how)) == texts(ours(sources, wishes, how))


def test_hypotheses_that_are_none_are_not_results(engine: CTranslate2Engine) -> None:
    """CTranslate2 fills a beam with them: after a prefix, an end token that is not the likeliest."""
    found = SimpleNamespace(hypotheses=[["a", "</s>"], ["<unk>"]], scores=[-1.0, -1e10])
    (draft,) = engine._read(found, DecodingConfig(beam=4, alpha=0.0), free=True)
    assert (draft.total, draft.cut) == (-1.0, False)


def test_a_search_goes_to_the_last_position_and_not_beyond(tmp_path: Path) -> None:
    model = stirred(replace(CONFIG, positions="learned", max_positions=12))
    judge = CTranslate2Engine(save(tmp_path / "model", model), threads=1)
    sources = draw_sources(5)
    for beam in (1, 4):
        for limit in (11, 50):
            found = judge.search(sources, [DecodingConstraints(limit)] * 5, DecodingConfig(beam=beam))
            assert max(len(some[0].tokens) for some in found) == 11


def test_a_list_is_ranked_by_what_its_results_are_in_the_end(engine: CTranslate2Engine) -> None:
    sources, how = draw_sources(40), DecodingConfig(beam=4, nbest=4, alpha=0.0)
    mixed = 0
    for wishes in (
        [DecodingConstraints(len(source) - 1) for source in sources],
        [DecodingConstraints(6, min_length=6)] * 40,
        [DecodingConstraints(FAR, forbidden_phrases=((7,), (9,), (11,)))] * 40,
    ):
        for some, wish in zip(engine.search(sources, wishes, how), wishes, strict=True):
            mixed += len({len(one.tokens) == wish.max_length for one in some}) == 2
            assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)
    assert mixed > 5


def test_one_that_was_cut_is_not_preferred_because_its_end_was_not_counted(
    engine: CTranslate2Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, how = draw_sources(60) * 3, DecodingConfig(beam=4, alpha=0.6, nbest=4)
    wishes = [
        DecodingConstraints(max(1, len(source) - 1 - number // 60)) for number, source in enumerate(sources)
    ]
    lists = engine.search(sources, wishes, how)
    mixed = [
        number
        for number, wish in enumerate(wishes)
        if len({len(one.tokens) == wish.max_length for one in lists[number]}) == 2
    ]

    def chosen() -> list[list[int]]:
        found = engine.search(sources, wishes, replace(how, nbest=1))
        return [found[number][0].tokens for number in mixed]

    best = [lists[number][0].tokens for number in mixed]
    assert chosen() == best
    monkeypatch.setattr(engine_room, "partly_cut", lambda drafts: False)
    assert chosen() != best


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_are_computed_as_far_as_they_are_asked_for(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, beam: int
) -> None:
    sources, how = draw_sources(20), DecodingConfig(beam=beam, nbest=beam)
    for wish in (DecodingConstraints(FAR), DecodingConstraints(5, min_length=5)):
        wishes = [wish] * 20
        total, tokens, none = (
            engine.search(sources, wishes, how, scores=which) for which in ("total", "tokens", "none")
        )
        assert texts(total) == texts(tokens) == texts(none)
        assert scores(total) == pytest.approx(scores(tokens), abs=1e-4)
        assert any(one.token_scores for some in total for one in some) == bool(wish.min_length)
        expected = TorchEngine(learned[1]).score(sources, [some[0].tokens for some in tokens])
        for some, each in zip(tokens, expected, strict=True):
            assert some[0].token_scores == pytest.approx(each, abs=1e-4)
            assert some[0].log_probability == pytest.approx(sum(each), abs=1e-4)
        if wish.min_length and beam == 1:
            assert all(map(math.isnan, scores(none)))


def test_an_empty_source_comes_out_empty_and_nothing_gives_nothing(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine
) -> None:
    for how in (DecodingConfig(beam=1), DecodingConfig(beam=4, nbest=4)):
        assert engine.search([], [], how) == []
        (empty,), other = engine.search([[EOS_ID], [5, 6, EOS_ID]], [DecodingConstraints(FAR)] * 2, how)
        assert empty.tokens == []
        assert empty.log_probability == pytest.approx(forced(learned, [EOS_ID], []), abs=1e-4)
        assert other[0].tokens
        begun = engine.search([[EOS_ID]], [DecodingConstraints(FAR, prefix=(5, 6))], how)[0][0]
        assert begun.tokens[:2] == [5, 6]
        assert begun.log_probability == pytest.approx(forced(learned, [EOS_ID], begun.tokens), abs=1e-4)
    assert engine.score([], []) == []


def test_several_threads_may_ask_at_once(engine: CTranslate2Engine) -> None:
    sources, how = draw_sources(16), DecodingConfig(beam=2)
    expected = texts(engine.search(sources, [DecodingConstraints(FAR)] * 16, how))
    found: list[Any] = []

    def ask() -> None:
        found.append(texts(engine.search(sources, [DecodingConstraints(FAR)] * 16, how)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [expected] * 4


@pytest.mark.parametrize("compute_type", ["int8", "int8_float32"])
def test_eight_bits_are_near_and_the_name_says_so(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, compute_type: str
) -> None:
    coarse = CTranslate2Engine(learned[0], compute_type, threads=1)
    assert (engine.name, coarse.name) == ("ctranslate2 float32", f"ctranslate2 {compute_type}")
    sources = draw_sources(20)
    targets = [source[:-1] for source in sources]
    fine, rough = engine.score(sources, targets), coarse.score(sources, targets)
    assert rough != fine
    for one, other in zip(fine, rough, strict=True):
        assert other == pytest.approx(one, abs=0.5)
    found = coarse.search(sources, [DecodingConstraints(FAR)] * 20, DecodingConfig(beam=4))
    assert all(map(math.isfinite, scores(found)))


# ---- the conversion that is kept


def which_conversion(folder: Path) -> int:
    return (folder / engine_room.CONVERSION_MANIFEST).stat().st_ino


def test_a_conversion_is_kept_beside_the_model_and_renewed_with_it(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", stirred(CONFIG))
    place = ensure_converted(folder)
    assert place == tmp_path / "model.ctranslate2"
    made = which_conversion(place)
    assert ensure_converted(folder) == place
    assert which_conversion(place) == made
    before = CTranslate2Engine(folder).score([[5, EOS_ID]], [[6]])
    model = stirred(CONFIG)
    save(folder, model)
    after = CTranslate2Engine(folder).score([[5, EOS_ID]], [[6]])
    assert which_conversion(place) != made
    assert after != before
    assert after[0] == pytest.approx(TorchEngine(model).score([[5, EOS_ID]], [[6]])[0], abs=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.ctranslate2"]


@pytest.mark.parametrize("harm", ["damage", "loss", "other format", "no JSON"])
def test_a_conversion_that_is_not_sound_is_made_anew(tmp_path: Path, harm: str) -> None:
    folder = save(tmp_path / "model", stirred(CONFIG))
    place = ensure_converted(folder)
    made, weights, marker = (
        which_conversion(place),
        place / "model.bin",
        place / engine_room.CONVERSION_MANIFEST,
    )
    if harm == "damage":
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    elif harm == "loss":
        weights.unlink()
    elif harm == "other format":
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": -1}))
    else:
        marker.write_text("{")
        with pytest.raises(mh.DataError, match="no folder of ours"):  # it might be anybody's
            ensure_converted(folder)
        return
    CTranslate2Engine(folder)
    assert which_conversion(place) != made


def test_a_place_that_cannot_be_written_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "model", stirred(CONFIG))

    def read_only(*_: Any, **__: Any) -> Iterator[Path]:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(engine_room, "written_aside", read_only)
        with pytest.raises(
            mh.RequestError,
            match=r"model\.ctranslate2: cannot be written \(Read-only file system\).*manyheads export",
        ):
            CTranslate2Engine(folder)
    convert(folder, tmp_path / "elsewhere")
    source, target = [[5, 6, EOS_ID]], [[7]]
    direct = CTranslate2Engine(tmp_path / "elsewhere").score(source, target)
    assert direct == CTranslate2Engine(folder).score(source, target)
    with pytest.raises(mh.DataError, match="exists already"):
        convert(folder, tmp_path / "elsewhere")


# ---- export


def test_an_export_is_verified_and_stands_alone(tmp_path: Path) -> None:
    model = stirred(CONFIG)
    checks = to_ctranslate2(save(tmp_path / "model", model), tmp_path / "out")
    assert len(checks) == 8
    assert all(abs(one.our_score - one.their_score) < 1e-3 for one in checks)
    assert SubwordPair.load(tmp_path / "out").source.sha256 == SMALL.sha256
    told = engine_room.describe(tmp_path / "out")
    mine = engine_room.describe(tmp_path / "model")
    assert (told.config, told.step, told.languages) == (mine.config, mine.step, mine.languages)

    import ctranslate2

    plain = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    pieces = [SMALL.id_to_piece(one) for one in (5, 6, EOS_ID)]
    found = plain.score_batch([pieces], [[SMALL.id_to_piece(7)]])[0].log_probs
    assert found == pytest.approx(TorchEngine(model).score([[5, 6, EOS_ID]], [[7]])[0], abs=1e-4)


def test_an_export_that_is_another_model_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "model", stirred(CONFIG))
    monkeypatch.setattr(
        engine_room, "sinusoids", lambda positions, d_model: torch.zeros(len(positions), d_model)
    )
    with pytest.raises(mh.CheckpointError, match="not the same model and was not kept"):
        to_ctranslate2(folder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_export_of_short_learned_positions_is_verified_by_what_fits(tmp_path: Path) -> None:
    model = stirred(replace(CONFIG, positions="learned", max_positions=12))
    checks = to_ctranslate2(save(tmp_path / "model", model), tmp_path / "out")
    assert 0 < len(checks) < 8


# ---- refusals


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"window": 4}, "window is 4"),
        ({"attention": "additive"}, "attention is 'additive'"),
        ({"normalization": "batch"}, "normalization is 'batch'"),
        ({"residuals": False}, "residuals is False"),
        ({"d_k": 3}, "d_k is 3"),
        ({"d_v": 5}, "d_v is 5"),
    ],
    ids=str,
)
def test_what_it_cannot_represent_is_refused_by_key(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    folder = save(tmp_path / "model", stirred(replace(CONFIG, **changes)))
    for call in (
        lambda: CTranslate2Engine(folder),
        lambda: convert(folder, tmp_path / "out"),
        lambda: to_ctranslate2(folder, tmp_path / "out"),
    ):
        with pytest.raises(
            mh.RequestError, match=rf"model\.{key}, which CTranslate2 cannot represent: use the torch engine"
        ):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_unknown_activation_is_refused_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(engine_room.ACTIVATIONS, "gelu")
    with pytest.raises(mh.RequestError, match=r"model\.activation is 'gelu'"):
        engine_room.check_convertible(replace(CONFIG, activation="gelu"))


def test_what_the_engine_lacks_is_refused_by_name(engine: CTranslate2Engine) -> None:
    source, wish, how = [5, 6, EOS_ID], DecodingConstraints(FAR), DecodingConfig(beam=1)
    too_long = [5] * 4096 + [EOS_ID]
    for sources, wishes, asked, message in (
        ([source], [wish], replace(how, temperature=1.0), r"decoding\.temperature is 1\.0.*torch engine"),
        (
            [source],
            [DecodingConstraints(FAR, required_phrases=((5,),))],
            how,
            "required in the output.*torch engine",
        ),
        ([too_long], [wish], how, "a source of 4097 tokens.*has 4096 positions"),
        ([[]], [wish], how, "a source without a token"),
    ):
        with pytest.raises(mh.RequestError, match=message):
            engine.search(sources, wishes, asked)
    for sources, targets, message in (
        ([too_long], [[5]], "a source of 4097 tokens"),
        ([source], [[5] * 4096], "a target of 4097 tokens"),
        ([[]], [[5]], "a source without a token"),
    ):
        with pytest.raises(mh.RequestError, match=message):
            engine.score(sources, targets)
    with pytest.raises(mh.DataError, match="token id 30, but the vocabulary has 30"):
        engine.search([[30, EOS_ID]], [wish], how)


def test_the_longest_that_is_allowed_is_not_cut(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine
) -> None:
    """CTranslate2 by itself would read 1,024 tokens of the source."""
    source = [*random.Random(0).choices(range(3, 30), k=1200), EOS_ID]
    assert sum(engine.score([source], [[5]])[0]) == pytest.approx(forced(learned, source, [5]), abs=1e-3)
    found = engine.search([source], [DecodingConstraints(4095)], DecodingConfig(beam=1, max_extra_length=0))
    assert found[0][0].log_probability == pytest.approx(forced(learned, source, found[0][0].tokens), rel=1e-4)


def test_an_unknown_compute_type_is_refused(learned: tuple[Path, mh.Transformer]) -> None:
    with pytest.raises(
        mh.RequestError, match="compute type 'int4', but there are float32, int8, int8_float32"
    ):
        CTranslate2Engine(learned[0], "int4")


def test_a_compute_type_that_the_cpu_lacks_is_refused(
    learned: tuple[Path, mh.Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine_room.import_ctranslate2(), "get_supported_compute_types", lambda device: {"float32"}
    )
    with pytest.raises(mh.RequestError, match="this CPU cannot compute in int8, but in float32"):
        CTranslate2Engine(learned[0], "int8")


def test_without_the_package_the_error_says_how_to_get_it(
    learned: tuple[Path, mh.Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(mh.RequestError, match=r"pip install 'manyheads\[ctranslate2\]'"):
        CTranslate2Engine(learned[0])


def test_a_damaged_export_is_refused(tmp_path: Path) -> None:
    convert(save(tmp_path / "model", stirred(CONFIG)), tmp_path / "out")
    (tmp_path / "out" / "model.bin").write_bytes(b"x")
    with pytest.raises(mh.CheckpointError, match=r"model\.bin: damaged"):
        CTranslate2Engine(tmp_path / "out")

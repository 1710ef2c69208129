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

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, SubwordConfig
from manyheads.export import ctranslate2 as conversion
from manyheads.export import ctranslate2_spec
from manyheads.export.ctranslate2 import convert, ensure_converted, to_ctranslate2
from manyheads.inference import ctranslate2_drafts, ctranslate2_engine
from manyheads.inference.conversion import CONVERSION_MANIFEST, read_conversion_info
from manyheads.inference.ctranslate2_engine import CTranslate2Engine
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.driver import search
from manyheads.search.options import DecodingConstraints, Hypothesis, Request, length_penalty
from manyheads.search.request_source import RequestFeed
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights

TEXT = ["the cat sat on the mat", "a dog ran home to sleep", "we go by sea and by land"] * 5
SMALL = SubwordTokenizer.train(TEXT, SubwordConfig(vocab_size=30, byte_fallback=False, term_symbols=False))
OTHER = SubwordTokenizer.train(TEXT, SubwordConfig(vocab_size=33, byte_fallback=False, term_symbols=False))
CONFIG = mh.TransformerConfig(vocab_size=30, layers=2, d_model=16, d_ff=24, heads=4, dropout=0.0)
UNREACHED = 60  # a limit that nothing here reaches
DecodingConfig = mh.DecodingConfig


def save(folder: Path, model: mh.Transformer) -> Path:
    apart = model.config.input_vocab_size != model.config.output_vocab_size
    pair = SubwordPair(OTHER, SMALL) if apart else SubwordPair(SMALL, SMALL)
    metadata: dict[str, Any] = {"step": 1, "languages": {"source": "en", "target": "ko"}}
    config = mh.Config(model=model.config)
    checkpoint.save(folder, checkpoint.collect_weights(model), pair, config, **metadata)
    return folder


def random_model(config: mh.ModelConfig) -> mh.Transformer:
    model = mh.Transformer(config).eval()
    randomize_weights(model)
    return model


def draw_sources(count: int, size: int = 30, max_length: int = 8) -> list[list[int]]:
    generator = random.Random(5)
    words = range(NUM_SPECIAL_TOKENS, size)
    return [[*generator.choices(words, k=generator.randint(1, max_length)), EOS_ID] for _ in range(count)]


def open_engine(folder: Path, *options: Any, **named: Any) -> CTranslate2Engine:
    """Convert a model folder and run it."""
    return CTranslate2Engine(ensure_converted(folder), *options, **named)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, mh.Transformer]:
    """A model that has begun to learn to copy: it ends by itself, and is sure of nothing."""
    torch.manual_seed(0)
    generator = random.Random(0)
    model = mh.Transformer(replace(CONFIG, d_model=32, d_ff=64, layers=1))
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(120):
        tokens_of = [generator.choices(range(3, 30), k=generator.randint(1, 8)) for _ in range(32)]
        source, labels = (mh.Packed.of([[*text, EOS_ID] for text in tokens_of]) for _ in range(2))
        logits = model(source, mh.Packed.of([[BOS_ID, *text] for text in tokens_of]))
        loss = F.cross_entropy(logits, labels.tokens)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return save(tmp_path_factory.mktemp("learned") / "model", model.eval()), model


@pytest.fixture(scope="module")
def engine(learned: tuple[Path, mh.Transformer]) -> CTranslate2Engine:
    return open_engine(learned[0], threads=1)


OurSearch = Callable[[list[list[int]], list[DecodingConstraints], mh.DecodingConfig], list[list[Hypothesis]]]


@pytest.fixture(scope="module")
def ours(learned: tuple[Path, mh.Transformer]) -> OurSearch:
    model = learned[1]

    def run(
        sources: list[list[int]], constraints: list[DecodingConstraints], config: mh.DecodingConfig
    ) -> list[list[Hypothesis]]:
        def begin(numbers: list[int], state: Any) -> Any:
            memory = model.encode(mh.Packed.of([sources[number] for number in numbers]))
            return model.start(memory, config.num_hypotheses) if state is None else state.append(memory)

        return search(model.step, begin, constraints, config, torch.device("cpu"))

    return run


def tokens_of(results: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in results]


def scores_of(results: list[list[Hypothesis]]) -> list[float]:
    return [hypothesis.score for hypotheses in results for hypothesis in hypotheses]


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
        {"encoder_layers": 3, "decoder_layers": 1},
    ],
    ids=str,
)
def test_forced_decoding_gives_our_scores(tmp_path: Path, changes: dict[str, Any]) -> None:
    try:
        config = replace(CONFIG, **changes)
    except mh.ConfigError:
        pytest.skip("this version's models have no such key")
    model = random_model(config)
    engine = open_engine(save(tmp_path / "model", model), threads=1)
    sources = [*draw_sources(9, config.input_vocab_size), [EOS_ID]]
    targets = [source[:-1] for source in draw_sources(9)[::-1]] + [[]]
    for theirs, mine in zip(
        engine.score(sources, targets), TorchEngine(model).score(sources, targets), strict=True
    ):
        assert theirs == pytest.approx(mine, abs=1e-4)


def test_equal_or_missing_pieces_get_different_texts() -> None:
    class Alike:
        def __len__(self) -> int:
            return 5

        def id_to_piece(self, token: int) -> str:
            return ["<unk>", "<s>", "</s>", "a", "a"][token]

    pieces = ctranslate2_spec.unique_pieces(Alike(), 7)  # type: ignore[arg-type]
    assert pieces[:4] == ["<unk>", "<s>", "</s>", "a"]
    assert len(set(pieces)) == 7


# ---- the same search, where the objective is the same


def test_at_alpha_0_the_n_best_lists_are_ours(engine: CTranslate2Engine, ours: OurSearch) -> None:
    sources, config = draw_sources(40), DecodingConfig(beam=4, alpha=0.0, nbest=4)
    constraints = [DecodingConstraints(UNREACHED)] * len(sources)
    results, expected = decode_all(engine, sources, constraints, config), ours(sources, constraints, config)
    assert tokens_of(results) == tokens_of(expected)
    assert scores_of(results) == pytest.approx(scores_of(expected), abs=1e-4)
    best = decode_all(engine, sources, constraints, replace(config, nbest=1))
    assert tokens_of(best) == [hypotheses[:1] for hypotheses in tokens_of(expected)]


def test_greedy_search_is_ours(engine: CTranslate2Engine, ours: OurSearch) -> None:
    """Also where the limit ends it, or a prefix, a least length or something forbidden bends it."""
    sources, config = draw_sources(40), DecodingConfig(beam=1)
    plain = [
        hypotheses[0].tokens for hypotheses in ours(sources, [DecodingConstraints(UNREACHED)] * 40, config)
    ]
    for constraints, changes in (
        ([DecodingConstraints(UNREACHED)] * 40, {}),
        ([DecodingConstraints(number % 5) for number in range(40)], {}),
        ([DecodingConstraints(UNREACHED, min_length=9)] * 40, {}),
        ([DecodingConstraints(7, min_length=7)] * 40, {}),
        ([DecodingConstraints(UNREACHED, prefix=(5, 9)[: number % 3]) for number in range(40)], {}),
        ([DecodingConstraints(1, prefix=(5, 9, 4))] * 40, {}),
        (
            [
                DecodingConstraints(UNREACHED, forbidden_phrases=(tuple(tokens[:2]),) if tokens else ())
                for tokens in plain
            ],
            {},
        ),
        ([DecodingConstraints(UNREACHED, forbidden_phrases=((7,), (9, 10)))] * 40, {}),
        ([DecodingConstraints(UNREACHED)] * 40, {"no_repeat_ngram": 1}),
        ([DecodingConstraints(UNREACHED)] * 40, {"no_repeat_ngram": 2}),
    ):
        changed = replace(config, **changes)
        results, expected = (
            decode_all(engine, sources, constraints, changed),
            ours(sources, constraints, changed),
        )
        assert tokens_of(results) == tokens_of(expected)
        assert scores_of(results) == pytest.approx(scores_of(expected), abs=1e-4)


def test_a_result_does_not_depend_on_the_other_requests(engine: CTranslate2Engine) -> None:
    sources = draw_sources(24)
    constraints = [
        DecodingConstraints(UNREACHED),
        DecodingConstraints(3),
        DecodingConstraints(70, prefix=(5,)),
        DecodingConstraints(20, forbidden_phrases=((6,),)),
        DecodingConstraints(200, min_length=4),
    ] * 5
    for config in (
        DecodingConfig(beam=1),
        DecodingConfig(beam=4, nbest=2),
        DecodingConfig(beam=3, alpha=0.0),
    ):
        together = decode_all(engine, sources, constraints[:24], config)
        alone = [decode_all(engine, [s], [w], config)[0] for s, w in zip(sources, constraints, strict=False)]
        assert tokens_of(together) == tokens_of(alone)
        assert scores_of(together) == pytest.approx(scores_of(alone), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.6, 2.0])
def test_n_best_lists_are_ranked_by_our_length_penalty(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, alpha: float
) -> None:
    sources, config = draw_sources(40), DecodingConfig(beam=4, alpha=alpha, nbest=4)
    constraints = [DecodingConstraints(UNREACHED)] * 40
    for source, hypotheses in zip(sources, decode_all(engine, sources, constraints, config), strict=True):
        assert len(hypotheses) == 4
        for hypothesis in hypotheses:
            total = forced(learned, source, hypothesis.tokens)
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
            assert hypothesis.score == pytest.approx(
                total / length_penalty(len(hypothesis.tokens) + 1, alpha), abs=1e-4
            )
        assert [hypothesis.score for hypothesis in hypotheses] == sorted(
            (hypothesis.score for hypothesis in hypotheses), reverse=True
        )


def test_our_length_penalty_orders_differently(
    engine: CTranslate2Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would show nothing: its L^alpha favors longer ones more than ours."""
    sources, config = draw_sources(40), DecodingConfig(beam=4, alpha=2.0, nbest=4)
    ranked = decode_all(engine, sources, [DecodingConstraints(UNREACHED)] * 40, config)
    monkeypatch.setattr(ctranslate2_drafts, "length_penalty", lambda length, alpha: length**alpha)
    assert tokens_of(decode_all(engine, sources, [DecodingConstraints(UNREACHED)] * 40, config)) != tokens_of(
        ranked
    )


# ---- limits, scores


@pytest.mark.parametrize("beam", [1, 4])
def test_constrained_results_have_the_score_of_forced_decoding(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, beam: int
) -> None:
    sources, config = draw_sources(20), DecodingConfig(beam=beam, nbest=beam, alpha=0.6)
    for own in (
        DecodingConstraints(2),
        DecodingConstraints(0),
        DecodingConstraints(9, min_length=9),
        DecodingConstraints(UNREACHED, prefix=(5, 9)),
        DecodingConstraints(UNREACHED, forbidden_phrases=((7,),)),
        DecodingConstraints(2, prefix=(4, 5, 6)),
    ):
        for source, hypotheses in zip(sources, decode_all(engine, sources, [own] * 20, config), strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                assert own.min_length <= len(hypothesis.tokens) <= own.max_length
                assert tuple(hypothesis.tokens[: len(own.prefix)]) == own.prefix[: own.max_length]
                assert not {(token,) for token in hypothesis.tokens} & set(own.forbidden_phrases)
                assert hypothesis.log_probability == pytest.approx(
                    forced(learned, source, hypothesis.tokens), abs=1e-4
                )


def test_a_wide_beam_finds_what_our_search_finds(engine: CTranslate2Engine, ours: OurSearch) -> None:
    sources, config = draw_sources(8, max_length=3), DecodingConfig(beam=20, alpha=0.0, nbest=5)
    constraints = [DecodingConstraints(UNREACHED)] * 8
    assert tokens_of(decode_all(engine, sources, constraints, config)) == tokens_of(
        ours(sources, constraints, config)
    )


def test_invalid_hypotheses_are_dropped(engine: CTranslate2Engine) -> None:
    """CTranslate2 fills a beam with them: after a prefix, an end token that is not the likeliest."""
    result = SimpleNamespace(hypotheses=[["a", "</s>"], ["<unk>"]], scores=[-1.0, -1e10])
    (draft,) = engine._read_drafts(result, DecodingConfig(beam=4, alpha=0.0), is_exact=True)
    assert (draft.log_probability, draft.is_cut) == (-1.0, False)


def test_a_search_ends_at_the_last_position(tmp_path: Path) -> None:
    model = random_model(replace(CONFIG, positions="learned", max_positions=12))
    engine = open_engine(save(tmp_path / "model", model), threads=1)
    sources = draw_sources(5)
    for beam in (1, 4):
        for limit in (11, 50):
            results = decode_all(engine, sources, [DecodingConstraints(limit)] * 5, DecodingConfig(beam=beam))
            assert max(len(hypotheses[0].tokens) for hypotheses in results) == 11


def test_a_list_is_ranked_by_its_final_scores(engine: CTranslate2Engine) -> None:
    sources, config = draw_sources(40), DecodingConfig(beam=4, nbest=4, alpha=0.0)
    mixed = 0
    for constraints in (
        [DecodingConstraints(len(source) - 1) for source in sources],
        [DecodingConstraints(6, min_length=6)] * 40,
        [DecodingConstraints(UNREACHED, forbidden_phrases=((7,), (9,), (11,)))] * 40,
    ):
        for hypotheses, own in zip(
            decode_all(engine, sources, constraints, config), constraints, strict=True
        ):
            mixed += len({len(hypothesis.tokens) == own.max_length for hypothesis in hypotheses}) == 2
            assert [hypothesis.score for hypothesis in hypotheses] == sorted(
                (hypothesis.score for hypothesis in hypotheses), reverse=True
            )
    assert mixed > 5


def test_a_cut_hypothesis_is_compared_with_its_end_token(
    engine: CTranslate2Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, config = draw_sources(60) * 3, DecodingConfig(beam=4, alpha=0.6, nbest=4)
    constraints = [
        DecodingConstraints(max(1, len(source) - 1 - number // 60)) for number, source in enumerate(sources)
    ]
    lists = decode_all(engine, sources, constraints, config)
    mixed = [
        number
        for number, own in enumerate(constraints)
        if len({len(hypothesis.tokens) == own.max_length for hypothesis in lists[number]}) == 2
    ]

    def chosen() -> list[list[int]]:
        results = decode_all(engine, sources, constraints, replace(config, nbest=1))
        return [results[number][0].tokens for number in mixed]

    best = [lists[number][0].tokens for number in mixed]
    assert chosen() == best
    monkeypatch.setattr(ctranslate2_engine, "is_partly_cut", lambda drafts: False)
    assert chosen() != best


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_are_computed_as_far_as_requested(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, beam: int
) -> None:
    sources, config = draw_sources(20), DecodingConfig(beam=beam, nbest=beam)
    for own in (DecodingConstraints(UNREACHED), DecodingConstraints(5, min_length=5)):
        constraints = [own] * 20
        total, tokens, none = (
            decode_all(engine, sources, constraints, config, scores=which)
            for which in ("total", "tokens", "none")
        )
        assert tokens_of(total) == tokens_of(tokens) == tokens_of(none)
        assert scores_of(total) == pytest.approx(scores_of(tokens), abs=1e-4)
        assert any(hypothesis.token_scores for hypotheses in total for hypothesis in hypotheses) == bool(
            own.min_length
        )
        expected = TorchEngine(learned[1]).score(sources, [hypotheses[0].tokens for hypotheses in tokens])
        for hypotheses, each in zip(tokens, expected, strict=True):
            assert hypotheses[0].token_scores == pytest.approx(each, abs=1e-4)
            assert hypotheses[0].log_probability == pytest.approx(sum(each), abs=1e-4)
        if own.min_length and beam == 1:
            assert all(map(math.isnan, scores_of(none)))


def test_an_empty_source_gives_an_empty_output(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine
) -> None:
    for config in (DecodingConfig(beam=1), DecodingConfig(beam=4, nbest=4)):
        assert decode_all(engine, [], [], config) == []
        (empty,), other = decode_all(
            engine, [[EOS_ID], [5, 6, EOS_ID]], [DecodingConstraints(UNREACHED)] * 2, config
        )
        assert empty.tokens == []
        assert empty.log_probability == pytest.approx(forced(learned, [EOS_ID], []), abs=1e-4)
        assert other[0].tokens
        begun = decode_all(engine, [[EOS_ID]], [DecodingConstraints(UNREACHED, prefix=(5, 6))], config)[0][0]
        assert begun.tokens[:2] == [5, 6]
        assert begun.log_probability == pytest.approx(forced(learned, [EOS_ID], begun.tokens), abs=1e-4)
    assert engine.score([], []) == []


def test_requests_that_arrive_later_get_the_same_results(engine: CTranslate2Engine) -> None:
    sources, config = draw_sources(12), DecodingConfig(beam=2)
    requests = [Request(source, DecodingConstraints(UNREACHED)) for source in sources]
    feed = RequestFeed(starts_at_once=True)

    def put_requests() -> None:
        for request in requests:
            feed.put([request])
        feed.close()

    thread = threading.Thread(target=put_requests)
    thread.start()
    results = dict(engine.decode(feed, config, window=4))
    thread.join()
    expected = decode_all(engine, sources, [request.constraints for request in requests], config)
    assert tokens_of([results[index] for index in range(12)]) == tokens_of(expected)


def test_several_threads_may_decode_at_once(engine: CTranslate2Engine) -> None:
    sources, config = draw_sources(16), DecodingConfig(beam=2)
    expected = tokens_of(decode_all(engine, sources, [DecodingConstraints(UNREACHED)] * 16, config))
    results: list[Any] = []

    def ask() -> None:
        results.append(tokens_of(decode_all(engine, sources, [DecodingConstraints(UNREACHED)] * 16, config)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


@pytest.mark.parametrize("compute_type", ["int8", "int8_float32"])
def test_int8_scores_are_close_and_named(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine, compute_type: str
) -> None:
    coarse = open_engine(learned[0], compute_type, threads=1)
    assert (engine.name, coarse.name) == ("ctranslate2 float32", f"ctranslate2 {compute_type}")
    sources = draw_sources(20)
    targets = [source[:-1] for source in sources]
    fine, rough = engine.score(sources, targets), coarse.score(sources, targets)
    assert rough != fine
    for exact, rounded in zip(fine, rough, strict=True):
        assert rounded == pytest.approx(exact, abs=0.5)
    results = decode_all(coarse, sources, [DecodingConstraints(UNREACHED)] * 20, DecodingConfig(beam=4))
    assert all(map(math.isfinite, scores_of(results)))


# ---- the conversion that is kept


def which_conversion(folder: Path) -> int:
    return (folder / CONVERSION_MANIFEST).stat().st_ino


def test_a_conversion_is_kept_beside_the_model_and_renewed_with_it(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", random_model(CONFIG))
    place = ensure_converted(folder)
    assert place == tmp_path / "model.ctranslate2"
    made = which_conversion(place)
    assert ensure_converted(folder) == place
    assert which_conversion(place) == made
    before = open_engine(folder).score([[5, EOS_ID]], [[6]])
    model = random_model(CONFIG)
    save(folder, model)
    after = open_engine(folder).score([[5, EOS_ID]], [[6]])
    assert which_conversion(place) != made
    assert after != before
    assert after[0] == pytest.approx(TorchEngine(model).score([[5, EOS_ID]], [[6]])[0], abs=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.ctranslate2"]


@pytest.mark.parametrize("harm", ["damage", "loss", "other format", "no JSON"])
def test_a_damaged_conversion_is_replaced(tmp_path: Path, harm: str) -> None:
    folder = save(tmp_path / "model", random_model(CONFIG))
    place = ensure_converted(folder)
    made, weights, marker = (
        which_conversion(place),
        place / "model.bin",
        place / CONVERSION_MANIFEST,
    )
    if harm == "damage":
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    elif harm == "loss":
        weights.unlink()
    elif harm == "other format":
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": -1}))
    else:
        marker.write_text("{")
        with pytest.raises(mh.RequestError, match="was not written by manyheads"):  # it might be anybody's
            ensure_converted(folder)
        return
    open_engine(folder)
    assert which_conversion(place) != made


def test_a_read_only_folder_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "model", random_model(CONFIG))

    def read_only(*_: Any, **__: Any) -> Iterator[Path]:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "atomic_directory", read_only)
        with pytest.raises(
            mh.RequestError,
            match=r"model\.ctranslate2: cannot be written \(Read-only file system\).*manyheads export",
        ):
            open_engine(folder)
    convert(folder, tmp_path / "elsewhere")
    source, target = [[5, 6, EOS_ID]], [[7]]
    direct = open_engine(tmp_path / "elsewhere").score(source, target)
    assert direct == open_engine(folder).score(source, target)
    with pytest.raises(mh.RequestError, match="exists already"):
        convert(folder, tmp_path / "elsewhere")


# ---- export


def test_an_export_is_verified_and_self_contained(tmp_path: Path) -> None:
    model = random_model(CONFIG)
    checks = to_ctranslate2(save(tmp_path / "model", model), tmp_path / "out")
    assert len(checks) == 8
    assert all(abs(check.our_score - check.their_score) < 1e-3 for check in checks)
    assert SubwordPair.load(tmp_path / "out").source.sha256 == SMALL.sha256
    info = read_conversion_info(tmp_path / "out")
    expected = checkpoint.read_info(tmp_path / "model")
    assert (info.config, info.step, info.languages) == (
        expected.config,
        expected.step,
        expected.languages,
    )

    import ctranslate2

    plain = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    pieces = [SMALL.id_to_piece(token) for token in (5, 6, EOS_ID)]
    results = plain.score_batch([pieces], [[SMALL.id_to_piece(7)]])[0].log_probs
    assert results == pytest.approx(TorchEngine(model).score([[5, 6, EOS_ID]], [[7]])[0], abs=1e-4)


def test_an_export_with_other_scores_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "model", random_model(CONFIG))
    zeros = np.zeros((ctranslate2_spec.SINUSOID_POSITIONS, CONFIG.d_model), np.float32)
    monkeypatch.setattr(ctranslate2_spec, "sinusoid_table", lambda positions, d_model: zeros)
    with pytest.raises(mh.CheckpointError, match="not the same model and was not kept"):
        to_ctranslate2(folder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_export_with_few_positions_is_verified_by_short_samples(tmp_path: Path) -> None:
    model = random_model(replace(CONFIG, positions="learned", max_positions=12))
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
def test_unsupported_models_are_refused_by_key(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    folder = save(tmp_path / "model", random_model(replace(CONFIG, **changes)))
    for call in (
        lambda: open_engine(folder),
        lambda: convert(folder, tmp_path / "out"),
        lambda: to_ctranslate2(folder, tmp_path / "out"),
    ):
        with pytest.raises(
            mh.RequestError, match=rf"model\.{key}, which CTranslate2 cannot represent: use the torch engine"
        ):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_unknown_activation_is_refused_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ctranslate2_spec.ACTIVATIONS, "gelu")
    with pytest.raises(mh.RequestError, match=r"model\.activation is 'gelu'"):
        conversion.check_convertible(replace(CONFIG, activation="gelu"))


def test_unsupported_requests_are_refused_by_name(engine: CTranslate2Engine) -> None:
    source, own, config = [5, 6, EOS_ID], DecodingConstraints(UNREACHED), DecodingConfig(beam=1)
    too_long = [5] * 4096 + [EOS_ID]
    for sources, constraints, changed, message in (
        ([source], [own], replace(config, temperature=1.0), r"decoding\.temperature is 1\.0.*torch engine"),
        (
            [source],
            [DecodingConstraints(UNREACHED, required_phrases=((5,),))],
            config,
            "required in the output.*torch engine",
        ),
        ([too_long], [own], config, "a source of 4097 tokens.*has 4096 positions"),
        ([[]], [own], config, "a source without a token"),
    ):
        with pytest.raises(mh.RequestError, match=message):
            decode_all(engine, sources, constraints, changed)
    for sources, targets, message in (
        ([too_long], [[5]], "a source of 4097 tokens"),
        ([source], [[5] * 4096], "a target of 4097 tokens"),
        ([[]], [[5]], "a source without a token"),
    ):
        with pytest.raises(mh.RequestError, match=message):
            engine.score(sources, targets)
    with pytest.raises(mh.DataError, match="token id 30, but the vocabulary has 30"):
        decode_all(engine, [[30, EOS_ID]], [own], config)


def test_the_longest_allowed_source_is_not_cut(
    learned: tuple[Path, mh.Transformer], engine: CTranslate2Engine
) -> None:
    """CTranslate2 by itself would read 1,024 tokens of the source."""
    source = [*random.Random(0).choices(range(3, 30), k=1200), EOS_ID]
    assert sum(engine.score([source], [[5]])[0]) == pytest.approx(forced(learned, source, [5]), abs=1e-3)
    results = decode_all(
        engine, [source], [DecodingConstraints(4095)], DecodingConfig(beam=1, max_extra_length=0)
    )
    assert results[0][0].log_probability == pytest.approx(
        forced(learned, source, results[0][0].tokens), rel=1e-4
    )


def test_an_unknown_compute_type_is_refused(learned: tuple[Path, mh.Transformer]) -> None:
    with pytest.raises(
        mh.RequestError, match="the compute type is 'int4', but must be one of float32, int8, int8_float32"
    ):
        open_engine(learned[0], "int4")


def test_a_compute_type_that_the_cpu_lacks_is_refused(
    learned: tuple[Path, mh.Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ctranslate2_engine.import_ctranslate2(), "get_supported_compute_types", lambda device: {"float32"}
    )
    with pytest.raises(mh.RequestError, match="this CPU cannot compute in int8, but in float32"):
        open_engine(learned[0], "int8")


def test_a_missing_package_is_named_with_its_extra(
    learned: tuple[Path, mh.Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(mh.RequestError, match=r"pip install '.*\[ctranslate2\]'"):
        open_engine(learned[0])


def test_a_damaged_export_is_refused(tmp_path: Path) -> None:
    convert(save(tmp_path / "model", random_model(CONFIG)), tmp_path / "out")
    (tmp_path / "out" / "model.bin").write_bytes(b"x")
    with pytest.raises(mh.CheckpointError, match=r"model\.bin: damaged"):
        open_engine(tmp_path / "out")


def test_alignments_are_those_of_the_torch_engine(tmp_path: Path) -> None:
    """The attention of the last layer, its heads averaged, for sources and targets of any length."""
    torch.manual_seed(3)
    model = random_model(CONFIG)
    folder = save(tmp_path / "model", model)
    ours, theirs = mh.load(folder, device="cpu").engine, mh.load(folder, engine="ctranslate2").engine
    rng = random.Random(5)
    sources = draw_sources(12)
    targets = [[rng.randrange(NUM_SPECIAL_TOKENS, 30) for _ in range(rng.randint(0, 9))] for _ in sources]
    expected, aligned = ours.align(sources, targets), theirs.align(sources, targets)
    for source, target, own, other in zip(sources, targets, expected, aligned, strict=True):
        assert other.shape == (len(target) + 1, len(source))
        assert np.abs(own.numpy() - other).max() < 1e-5
    assert theirs.align([[EOS_ID]], [[5]])[0].shape == (2, 1)

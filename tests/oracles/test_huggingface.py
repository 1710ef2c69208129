"""Hugging Face opens what we export and gives our numbers; what it has, OPUS-MT's folders too, we read so."""

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from torch import Tensor

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, DecodingConfig, Recipe, SubwordConfig
from manyheads.data.prepare import prepare
from manyheads.export import from_huggingface as importing
from manyheads.export import marian as marian_format
from manyheads.export.from_huggingface import from_huggingface
from manyheads.export.to_huggingface import to_huggingface
from manyheads.search.driver import greedy_search, search
from manyheads.search.options import DecodingConstraints, Hypothesis
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from manyheads.train.log import read_log
from manyheads.train.loss import chunked_loss
from manyheads.train.run import train
from support.strategies import randomize_weights

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

ENGLISH = [f"{who} {does} {n} {what}." for n in range(9) for who in ("She", "Mina", "The cat")
           for does in ("sees", "buys") for what in ("books", "green apples", "houses")]  # fmt: skip
KOREAN = [f"{who} {what} {n}개를 {does}." for n in range(9) for who in ("그녀는", "미나는", "고양이가")
          for does in ("본다", "산다") for what in ("책", "초록 사과", "집")]  # fmt: skip
TEXTS = ["She buys 7 houses.", "고양이가 초록 사과 3개를 본다.", "뷁 漢字 é 🙂 never seen", "a", ""]
BOTH = SubwordTokenizer.train([*ENGLISH, *KOREAN], SubwordConfig(vocab_size=400))
JOINT = SubwordPair(BOTH, BOTH)
APART = SubwordPair(
    SubwordTokenizer.train(ENGLISH, SubwordConfig(vocab_size=320)),
    SubwordTokenizer.train(KOREAN, SubwordConfig(vocab_size=304, algorithm="unigram")),
)
LANGUAGES = {"source": "en", "target": "ko"}
MODEL = {"layers": 2, "d_model": 32, "d_ff": 48, "heads": 4}
WRITES = {
    "layers": 1,
    "tie_embeddings": "none",
    "output_bias": True,
}  # a model that writes sentences of some tokens


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def saved(folder: Path, subwords: SubwordPair = JOINT, **model: Any) -> mh.Transformer:
    """A model folder with weights that matter; with an output bias its sentences end soon."""
    torch.manual_seed(1)
    config = mh.Config(
        model=checkpoint.fit_to_vocabulary(mh.TransformerConfig(**{**MODEL, **model}), subwords)
    )
    made = mh.Transformer(config.model).eval()
    enliven(made)
    if config.model.output_bias:
        made.output.bias.data[EOS_ID] = 4.0
    weights = checkpoint.collect_weights(made)
    checkpoint.save(folder, weights, subwords, config, step=7, languages=LANGUAGES)
    return made


def enliven(model: torch.nn.Module) -> None:
    """Weights that matter, and biases that do not decide everything."""
    randomize_weights(model)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data *= 0.1


def load_marian(folder: Path) -> Any:
    import transformers

    return transformers.MarianMTModel.from_pretrained(folder, local_files_only=True).eval()


def tokenizer(folder: Path) -> Any:
    import transformers

    return transformers.MarianTokenizer.from_pretrained(folder, local_files_only=True)


def draw_pairs(subwords: SubwordPair, count: int = 6) -> tuple[list[list[int]], list[list[int]]]:
    """Sources with their end, and targets with begin."""
    torch.manual_seed(0)

    def draw(tokenizer: SubwordTokenizer) -> list[list[int]]:
        return [torch.randint(3, len(tokenizer), (1 + 3 * n,)).tolist() for n in range(count)]

    return [[*ids, EOS_ID] for ids in draw(subwords.source)], [
        [BOS_ID, *ids] for ids in draw(subwords.target)
    ]


def padded(sentences: list[list[int]], pad: int) -> dict[str, Tensor]:
    longest = max(map(len, sentences))
    return {
        "input_ids": torch.tensor([ids + [pad] * (longest - len(ids)) for ids in sentences]),
        "attention_mask": torch.tensor([[1] * len(i) + [0] * (longest - len(i)) for i in sentences]),
    }


# ---- out


@pytest.mark.parametrize(
    ("subwords", "model"),
    [
        (JOINT, {}),
        (JOINT, {"output_bias": True, "activation": "swish"}),
        (JOINT, {"layers": None, "encoder_layers": 3, "decoder_layers": 1}),
        (JOINT, {"tie_embeddings": "two-way", "activation": "gelu"}),
        (APART, {"tie_embeddings": "none", "output_bias": True}),
        (APART, {"tie_embeddings": "two-way"}),
    ],
)
def test_an_export_gives_our_logits(tmp_path: Path, subwords: SubwordPair, model: dict[str, Any]) -> None:
    ours = saved(tmp_path / "ours", subwords, **model)
    checks = to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert max(abs(check.our_score - check.their_score) for check in checks) < 1e-3
    assert len({round(check.our_score, 3) for check in checks}) == len(checks) == 8
    sources, targets = draw_pairs(subwords)
    source, target = mh.Packed.of(sources), mh.Packed.of(targets)
    for dtype, tolerance in ((torch.float32, 5e-5), (torch.float64, 2e-6)):  # their positions are float32's
        marian = load_marian(tmp_path / "theirs").to(dtype)
        inputs = padded(targets, marian.config.pad_token_id)
        with torch.no_grad():
            logits = marian(
                **padded(sources, marian.config.pad_token_id),
                decoder_input_ids=inputs["input_ids"],
                decoder_attention_mask=inputs["attention_mask"],
            ).logits
            mine = ours.to(dtype)(source, target)
        theirs, known = target.unpad(logits), mine.shape[1]
        assert mine.std(0).mean() > 0.3  # tokens are told apart, so that agreement means something
        slack = {"atol": tolerance, "rtol": tolerance}
        torch.testing.assert_close(theirs[:, :known], mine, **slack)
        torch.testing.assert_close(theirs.log_softmax(-1)[:, :known], mine.log_softmax(-1), **slack)
        assert (theirs[:, known:] < -9000).all()


@pytest.mark.parametrize("subwords", [JOINT, APART])
def test_their_tokenizer_gives_our_ids_and_our_text(tmp_path: Path, subwords: SubwordPair) -> None:
    saved(tmp_path / "ours", subwords)
    to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    theirs = tokenizer(tmp_path / "theirs")
    assert (theirs.source_lang, theirs.target_lang) == ("en", "ko")
    for text in TEXTS:
        mine = subwords.source.encode(text)
        assert theirs(text)["input_ids"] == [*mine, EOS_ID]
        mine = subwords.target.encode(text)
        assert theirs(text_target=text)["input_ids"] == [*mine, EOS_ID]
        assert theirs.decode([BOS_ID, *mine, EOS_ID][1:], skip_special_tokens=True) == subwords.target.decode(
            mine
        )
    theirs.punc_normalizer = None  # what sacremoses would be, if it were asked
    batch = theirs(TEXTS, padding=True, return_tensors="pt")
    pad = max(len(subwords.source), len(subwords.target))
    assert theirs.pad_token_id == pad == batch["input_ids"].max()


def run_search(
    ours: mh.Transformer, sources: list[list[int]], config: DecodingConfig
) -> list[list[Hypothesis]]:
    def admit(numbers: list[int], state: Any) -> Any:
        memory = ours.encode(mh.Packed.of([sources[number] for number in numbers]))
        return ours.start(memory, config.num_hypotheses) if state is None else state.append(memory)

    return search(ours.step, admit, [DecodingConstraints(60)] * len(sources), config, torch.device("cpu"))


def without_specials(ids: Tensor, pad: int) -> list[int]:
    return [token for token in ids.tolist()[1:] if token not in (EOS_ID, pad)]


def test_their_greedy_search_writes_our_tokens(tmp_path: Path) -> None:
    ours = saved(tmp_path / "ours", **WRITES)
    to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    marian = load_marian(tmp_path / "theirs")
    sources, _ = draw_pairs(JOINT)
    with torch.no_grad():
        state = ours.start(ours.encode(mh.Packed.of(sources)))
        mine = greedy_search(ours.step, state, [60] * len(sources), torch.device("cpu"))
    theirs = marian.generate(**padded(sources, 400), num_beams=1, do_sample=False, max_length=70)
    assert [without_specials(ids, 400) for ids in theirs] == mine
    assert len({tuple(ids) for ids in mine}) > 1
    assert 0 < max(map(len, mine)) < 60


def test_their_beam_search_finds_our_n_best_lists_without_a_length_penalty(
    tmp_path: Path,
) -> None:
    ours = saved(tmp_path / "ours", **WRITES)
    to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    marian = load_marian(tmp_path / "theirs")
    sources, _ = draw_pairs(JOINT)
    mine = run_search(ours, sources, DecodingConfig(beam=4, nbest=4, alpha=0.0))
    theirs = marian.generate(
        **padded(sources, 400),
        num_beams=4,
        num_return_sequences=4,
        length_penalty=0.0,
        early_stopping="never",
        max_length=70,
        return_dict_in_generate=True,
        output_scores=True,
    )
    outputs = [without_specials(ids, 400) for ids in theirs.sequences]
    assert outputs == [hypothesis.tokens for results in mine for hypothesis in results]
    scores = torch.tensor([hypothesis.score for results in mine for hypothesis in results])
    torch.testing.assert_close(theirs.sequences_scores, scores, atol=1e-4, rtol=1e-5)
    lengths = {len(ids) for ids in outputs}
    assert len(lengths) > 2
    assert max(lengths) < 60  # so that no limit decided anything


@pytest.mark.parametrize(
    ("key", "model"),
    [
        ("norm", {"norm": "pre"}),
        ("normalization", {"normalization": "batch"}),
        ("positions", {"positions": "learned"}),
        ("positions", {"positions": "none"}),
        ("attention", {"attention": "dot"}),
        ("attention", {"attention": "additive"}),
        ("window", {"window": 5}),
        ("residuals", {"residuals": False}),
        ("d_k", {"d_k": 3}),
        ("d_v", {"d_v": 4}),
    ],
)
def test_models_that_marian_cannot_represent_are_refused_by_key(
    tmp_path: Path, key: str, model: dict[str, Any]
) -> None:
    saved(tmp_path / "ours", **model)
    with pytest.raises(mh.RequestError, match=rf"model\.{key} is {next(iter(model.values()))!r}, but"):
        to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_an_export_with_other_scores_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "ours")
    monkeypatch.setattr(marian_format, "marian_order", lambda d_model: torch.arange(d_model))
    with pytest.raises(mh.CheckpointError, match="the export is not the same model and was not kept"):
        to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_existing_folders_are_not_overwritten(tmp_path: Path) -> None:
    saved(tmp_path / "ours")
    for make in (to_huggingface, from_huggingface):
        with pytest.raises(mh.RequestError, match="exists already"):
            make(tmp_path / "ours", tmp_path)


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"output_bias": True, "activation": "swish"},
        {"layers": None, "encoder_layers": 3, "decoder_layers": 1},
    ],
)
def test_an_export_imported_again_is_the_same_model(tmp_path: Path, model: dict[str, Any]) -> None:
    saved(tmp_path / "ours", **model)
    to_huggingface(tmp_path / "ours", tmp_path / "theirs")
    from_huggingface(tmp_path / "theirs", tmp_path / "again")
    before, after = (checkpoint.load_model(tmp_path / name) for name in ("ours", "again"))
    weights, again = (checkpoint.collect_weights(loaded[0]) for loaded in (before, after))
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert after[1].is_joint
    assert before[1].is_same_as(after[1])
    assert before[2].config.model == after[2].config.model
    assert after[2].languages == LANGUAGES


# ---- in


def trained_spm(path: Path, texts: list[str], size: int, **options: Any) -> list[str]:
    """As OPUS-MT's: a unigram model with SentencePiece's own normalizer. Its pieces."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(path.with_suffix("")),
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()
    spm = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [spm.id_to_piece(token) for token in range(3, len(spm))]


FORGOTTEN = ("▁green", "▁고양이가")  # pieces of the .spm files that vocab.json lacks


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder such as OPUS-MT publishes: many languages out, swish, a bias, pad as the first token."""
    import transformers

    folder = tmp_path_factory.mktemp("opus") / "opus-mt-en-mul"
    folder.mkdir()
    pieces = [
        *trained_spm(folder / "source.spm", [*ENGLISH, "green green"] * 2, 60),
        *trained_spm(folder / "target.spm", KOREAN, 70),
    ]
    assert {*FORGOTTEN} < {*pieces}
    words = ["</s>", "<unk>", *dict.fromkeys(pieces), ">>kor<<", ">>jpn_Hira<<", "<pad>"]
    words = [word for word in words if word not in FORGOTTEN]
    pad = len(words) - 1
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    languages = {"source_lang": "en", "target_lang": "mul"}
    (folder / "tokenizer_config.json").write_text(json.dumps(languages))
    torch.manual_seed(3)
    marian = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=len(words),
            d_model=32,
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")},
            activation_function="swish",
            scale_embedding=True,
            max_position_embeddings=64,
            pad_token_id=pad,
            decoder_start_token_id=pad,
            eos_token_id=0,
            bos_token_id=0,
            forced_eos_token_id=0,
        )
    )
    enliven(marian)
    for stack in (marian.model.encoder, marian.model.decoder):  # which stir has stirred too
        stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
    marian.model.shared.weight.data[pad] = 0
    marian.final_logits_bias.normal_()
    marian.final_logits_bias[0, 0] += 3
    marian.generation_config.bad_words_ids = [[pad]]
    marian.save_pretrained(folder)
    info = json.loads((folder / "config.json").read_text())
    info |= {"normalize_before": False, "static_position_embeddings": True, "add_bias_logits": False}
    (folder / "config.json").write_text(json.dumps(info))
    return folder


@pytest.fixture(scope="module")
def read(opus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("read") / "ours"
    checks = from_huggingface(opus, out)
    assert max(abs(check.our_score - check.their_score) for check in checks) < 1e-3
    return out


def as_theirs(opus: Path, subwords: SubwordTokenizer, ids: list[int]) -> list[int]:
    """Our ids in theirs, by the names of the words."""
    words = json.loads((opus / "vocab.json").read_text())
    names = {UNK_ID: "<unk>", BOS_ID: "<pad>", EOS_ID: "</s>"}
    pieces = [names.get(token, subwords.id_to_piece(token)) for token in ids]
    return [words.get(piece.removeprefix("▁") if ">>" in piece else piece, 1) for piece in pieces]


def test_an_opus_folder_is_read_with_its_scores(opus: Path, read: Path) -> None:
    ours, subwords, info = checkpoint.load_model(read)
    marian = load_marian(opus)
    pad = marian.config.pad_token_id
    assert not subwords.is_joint
    assert subwords.has_shared_ids
    assert info.languages == {"source": "en", "target": "mul"}
    model = info.config.model
    assert isinstance(model, mh.TransformerConfig)
    assert (model.activation, model.output_bias, model.tie_embeddings) == ("swish", True, "three-way")
    assert (model.vocab_size, info.config.data.max_length) == (marian.config.vocab_size + len(FORGOTTEN), 64)
    known = [
        token for token in range(3, model.vocab_size) if subwords.target.id_to_piece(token) not in FORGOTTEN
    ]
    for length in (1, 5, 20):
        target = [known[token] for token in torch.randint(len(known), (length,)).tolist()]
        source = torch.randint(3, model.vocab_size, (length,)).tolist()
        with torch.no_grad():
            mine = ours(mh.Packed.of([[*source, EOS_ID]]), mh.Packed.of([[BOS_ID, *target]])).log_softmax(-1)
            theirs = marian(
                input_ids=torch.tensor([as_theirs(opus, subwords.source, [*source, EOS_ID])]),
                decoder_input_ids=torch.tensor([as_theirs(opus, subwords.target, [BOS_ID, *target])]),
            ).logits[0]
        theirs[:, pad] = -torch.inf
        order = as_theirs(opus, subwords.target, [UNK_ID, EOS_ID, *known])
        theirs = theirs.log_softmax(-1)[:, order]
        torch.testing.assert_close(mine[:, [UNK_ID, EOS_ID, *known]], theirs, atol=1e-5, rtol=1e-5)
        others = [BOS_ID, *(token for token in range(3, model.vocab_size) if token not in known)]
        assert (mine[:, others] < -9000).all()


def test_text_of_an_opus_folder_gives_their_ids(opus: Path, read: Path) -> None:
    subwords, theirs = checkpoint.read_subwords(read), tokenizer(opus)
    texts = [*ENGLISH[::7], "She buys ①  ﬁne things", "Mina, 본 cat? 漢字", "green", "그녀는 buys 책"]
    texts += [">>kor<< She sees 3 books.", ">>jpn_Hira<< Mina"]
    seen = set()
    for text in texts:
        mine = subwords.source.encode(text)
        seen |= {*mine}
        assert as_theirs(opus, subwords.source, [*mine, EOS_ID]) == theirs(text)["input_ids"]
    assert UNK_ID in seen
    assert {subwords.source.id_to_piece(token) for token in seen} > {"▁>>kor<<", "▁green", "본", "그녀는"}
    for text in KOREAN:
        if "고양이" not in text:
            mine, expected = subwords.target.encode(text), theirs(text_target=text)["input_ids"]
            assert as_theirs(opus, subwords.target, [*mine, EOS_ID]) == expected
            assert subwords.target.decode(mine) == theirs.decode(expected, skip_special_tokens=True) == text


def test_a_target_is_split_around_pieces_that_cannot_be_written(read: Path) -> None:
    target = checkpoint.read_subwords(read).target
    text = "고양이가 책 3개를 본다."
    ids = target.encode(text)
    assert UNK_ID not in ids
    assert "▁고양이가" not in {target.id_to_piece(token) for token in ids}
    assert target.decode(ids) == text


def test_a_word_that_only_the_source_has_can_be_written(read: Path) -> None:
    subwords = checkpoint.read_subwords(read)
    ids = subwords.source.encode("She sees books.")
    assert subwords.target.decode(ids) == "She sees books."
    assert subwords.target.encode("She sees books.") != ids


def test_an_opus_folder_translates_as_marian_does(opus: Path, read: Path) -> None:
    ours, subwords, _ = checkpoint.load_model(read)
    marian, theirs = load_marian(opus), tokenizer(opus)
    texts = [">>kor<< She sees 3 books.", "Mina buys 5 green apples.", "cat"]
    batch = theirs(texts, padding=True, return_tensors="pt")
    outputs = marian.generate(**batch, num_beams=1, do_sample=False, max_length=60)
    with torch.no_grad():
        state = ours.start(ours.encode(mh.Packed.of([[*subwords.source.encode(t), EOS_ID] for t in texts])))
        mine = greedy_search(
            ours.step, state, [58] * len(texts), torch.device("cpu")
        )  # begin and end make 60
    for ids, expected in zip(mine, outputs.tolist(), strict=True):
        end = expected.index(0)
        assert as_theirs(opus, subwords.target, ids) == expected[1:end]
    assert len({tuple(ids) for ids in mine}) == len(texts)


def test_an_import_can_be_exported_again(read: Path, opus: Path, tmp_path: Path) -> None:
    to_huggingface(read, tmp_path / "again")
    words = json.loads((tmp_path / "again" / "vocab.json").read_text())
    assert {">>kor<<", "<s>", "<pad>"} < words.keys()
    text = ">>kor<< She sees 3 books."
    assert tokenizer(tmp_path / "again")(text)["input_ids"] == [
        *checkpoint.read_subwords(read).source.encode(text),
        EOS_ID,
    ]


def test_fine_tuning_keeps_the_shared_matrix_of_an_import(read: Path) -> None:
    _, subwords, info = checkpoint.load_model(read)
    fitted = checkpoint.fit_to_vocabulary(replace(info.config.model, vocab_size=37_000), subwords)
    assert fitted == info.config.model
    tuned = mh.Transformer(fitted)
    checkpoint.load_initial_weights(tuned, subwords, read)
    labels = torch.tensor([*subwords.target.encode(KOREAN[0]), EOS_ID])
    source = mh.Packed.of([[*subwords.source.encode(ENGLISH[0]), EOS_ID]])
    hidden = tuned.hidden(source, mh.Packed.of([[BOS_ID, *labels[:-1].tolist()]]))
    loss = chunked_loss(hidden, tuned.output, labels, mh.TrainConfig())
    loss.total.backward()
    assert loss.nll.item() / loss.tokens < 14  # and not 1e4, as for a label that can never be written
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in tuned.parameters())


def test_two_vocabularies_of_one_size_do_not_share_a_matrix() -> None:
    other = SubwordTokenizer.train(KOREAN, SubwordConfig(vocab_size=320))
    pair = SubwordPair(APART.source, other)
    assert len(pair.source) == len(pair.target)
    assert checkpoint.fit_to_vocabulary(mh.TransformerConfig(), pair).tie_embeddings == "two-way"


@pytest.mark.heavy
def test_an_import_can_be_trained(read: Path, tmp_path: Path) -> None:
    files = [str(tmp_path / "a.en"), str(tmp_path / "a.ko")]
    for path, texts in zip(files, (ENGLISH, KOREAN), strict=True):
        Path(path).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    tables = {
        "train": [{"files": files}],
        "corpus": {"hold_out": 7, "source": "en", "target": "ko"},
        "subwords": {"reuse_from": str(read)},
    }
    prepare(Recipe.from_mapping(tables), tmp_path / "data")
    model = {**MODEL, "activation": "swish", "output_bias": True}
    config = mh.Config(
        model=mh.TransformerConfig(**model),
        data=mh.DataConfig(folder=str(tmp_path / "data"), batch_tokens=300),
        train=mh.TrainConfig(
            steps=20,
            learning_rate=5e-3,
            warmup=4,
            log_every=1,
            init_from=str(read),
            bleu_sentences=3,
            card=False,
        ),
    )
    train(config, tmp_path / "run", device="cpu")
    losses = [line["loss"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["event"] == "train"]
    assert losses[-1] < losses[0] - 0.5
    tuned, _, info = checkpoint.load_model(tmp_path / "run" / "model")
    assert info.config.model.tie_embeddings == "three-way"
    assert tuned.output.bias[BOS_ID] < -9000


# ---- what is refused


@pytest.fixture
def damaged_copy(opus: Path, tmp_path: Path) -> Path:
    shutil.copytree(opus, tmp_path / "spoilt")
    return tmp_path / "spoilt"


def refused(folder: Path, message: str) -> None:
    out = folder.parent / "out"
    with pytest.raises(mh.CheckpointError, match=message):
        from_huggingface(folder, out)
    assert not out.exists()


class Trap:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_pickle_is_refused_and_not_executed(damaged_copy: Path, tmp_path: Path) -> None:
    pickled = pickle.dumps(Trap(tmp_path / "mark"))
    (damaged_copy / "pytorch_model.bin").write_bytes(pickled)
    from_huggingface(damaged_copy, tmp_path / "beside")  # one that lies beside safetensors is not looked at
    (damaged_copy / "model.safetensors").unlink()
    refused(damaged_copy, r"model\.safetensors: is missing; pytorch_model\.bin is a pickle.*convert it")
    (damaged_copy / "model.safetensors").write_bytes(pickled)
    refused(damaged_copy, r"model\.safetensors: not safetensors")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "bart"),
        ("normalize_before", True),
        ("normalize_embedding", True),
        ("add_final_layer_norm", True),
        ("static_position_embeddings", False),
        ("scale_embedding", False),
        ("share_encoder_decoder_embeddings", False),
        ("tie_word_embeddings", False),
        ("decoder_layers", "1"),
        ("decoder_attention_heads", 2),
        ("decoder_ffn_dim", 24),
        ("decoder_vocab_size", 50),
        ("activation_function", "gelu_new"),
        ("eos_token_id", [0, 1]),
        ("eos_token_id", 10_000),
        ("pad_token_id", 0),
        ("bad_words_ids", [[5]]),
        ("d_model", 31),
        ("d_model", "32"),
        ("vocab_size", 50),
    ],
)
def test_settings_that_our_models_lack_are_refused_by_key(damaged_copy: Path, key: str, value: Any) -> None:
    info = json.loads((damaged_copy / "config.json").read_text())
    generation = json.loads((damaged_copy / "generation_config.json").read_text())
    (damaged_copy / "config.json").write_text(json.dumps({**info, key: value}))
    (damaged_copy / "generation_config.json").write_text(
        json.dumps({**generation, key: value} if key in generation else generation)
    )
    refused(damaged_copy, key)


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    weights = checkpoint.read_tensors(folder / "model.safetensors")
    change(weights)
    checkpoint.write_tensors(folder / "model.safetensors", weights, {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.encoder.embed_positions.weight": torch.randn(64, 32)}, "not Marian's sines and cosines"),
        ({"model.encoder.layer_norm.weight": torch.ones(16)}, "holds model.encoder.layer_norm.weight"),
        ({"lm_head.weight": torch.ones(4, 16)}, "lm_head.weight is not model.shared.weight"),
        ({"model.encoder.layers.0.fc1.weight": torch.ones(48, 8)}, r"fc1.weight is \[48, 8\]"),
        ({"model.encoder.layers.0.fc1.weight": torch.ones(23, 32)}, r"w_1.weight is \[23, 32\]"),
        ({"final_logits_bias": torch.ones(1, 3)}, r"final_logits_bias is \[1, 3\]"),
        ({"model.encoder.layers.1.fc2.bias": None}, "lacks model.encoder.layers.1.fc2.bias"),
        ({"model.shared.weight": None}, "lacks model.shared.weight"),
    ],
)
def test_foreign_weights_are_refused_by_name(
    damaged_copy: Path, change: dict[str, Tensor | None], message: str
) -> None:
    def spoil(weights: dict[str, Tensor]) -> None:
        for name, value in change.items():
            weights.pop(name, None)
            if value is not None:
                weights[name] = value

    change_weights(damaged_copy, spoil)
    refused(damaged_copy, message)


def test_a_stored_table_of_positions_and_tied_copies_are_read(
    damaged_copy: Path, opus: Path, tmp_path: Path
) -> None:
    table = load_marian(opus).model.encoder.embed_positions.weight.detach().clone()

    def add(weights: dict[str, Tensor]) -> None:
        weights["model.encoder.embed_positions.weight"] = table
        weights["lm_head.weight"] = weights["model.shared.weight"].clone()

    change_weights(damaged_copy, add)
    from_huggingface(damaged_copy, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", None, "config.json: No such file.*a Marian folder has it"),
        ("config.json", "{", "config.json: not JSON"),
        ("config.json", "[]", "config.json: not a JSON object"),
        ("vocab.json", '{"a": 0}', "vocab.json: does not name each of vocab_size"),
        ("vocab.json", '{"a": "0"}', "vocab.json: does not name each of vocab_size"),
        ("source.spm", None, "source.spm: No such file"),
        ("source.spm", "version https://git-lfs.github.com/spec/v1", "source.spm: not a SentencePiece model"),
        ("source.spm", "", "source.spm: not a SentencePiece model"),
        ("tokenizer_config.json", '{"separate_vocabs": true}', "tokenizer_config.json: separate_vocabs is"),
        ("tokenizer_config.json", '{"unk_token": "<what>"}', "has no word for unk_token"),
    ],
)
def test_damaged_files_are_refused_by_name(
    damaged_copy: Path, name: str, text: str | None, message: str
) -> None:
    (damaged_copy / name).unlink()
    if text is not None:
        (damaged_copy / name).write_text(text)
    refused(damaged_copy, message)


def test_an_import_with_other_scores_is_not_kept(damaged_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marian_format, "interleaved_order", lambda d_model: torch.arange(d_model))
    refused(damaged_copy, "the export is not the same model and was not kept")


@pytest.mark.parametrize(
    ("given", "code"),
    [("ko", "ko"), ("jpn_Hira", "jpn_Hira"), ("ROMANCE", "und"), ("jp", "und"), (None, "und")],
)
def test_an_unknown_language_is_undetermined(
    opus: Path, given: str | None, code: str, tmp_path: Path
) -> None:
    assert importing.MarianFolder(opus, {}, {"target_lang": given}).language("target") == code

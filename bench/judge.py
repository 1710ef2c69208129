"""How well `manyheads judge` finds wrong pairs: a corpus is damaged in known ways, judged, and compared.

python bench/judge.py train.en.xz train.de.xz --foreign train.fr.xz --pairs 20000 --rates 0.1 0.3
python bench/judge.py train.en.xz train.de.xz --foreign train.fr.xz --pairs 200000 --rates 0.3 \
    --test test.en.xz test.de.xz --steps 20000 --preset small --out judge-recovery --json result.json

With --test, models are trained on the clean, the damaged and the kept pairs, and the share of the lost BLEU
that judging recovers is printed. With --out, what is complete there is not computed again, and a training
that was stopped goes on; --json has the results of each rate as soon as they are known.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.metrics import compute_auroc
from manyheads.config import CorpusConfig, DataConfig, InputConfig, Recipe
from manyheads.data.judged import read_rows
from manyheads.judge.run import JudgeOptions, judge_corpus
from manyheads.text.input_files import open_input, strip_compression_suffix

GOOD = "good"
SHORT_WORDS = 5  # of a source that is short
BOOTSTRAP_SAMPLES = 1000
NOISE = "abcdefghijklmnopqrstuvwxyz      .,0123#%"
Pair = tuple[str, str]


def read_text(file: str, count: int | None, skip: int = 0) -> list[str]:
    with open_input(file, lambda size: None) as stream:
        lines = islice(stream, skip, None if count is None else skip + count)
        return [line.decode().removesuffix("\n") for line in lines]


# ---- damage


def shift(n: int, pairs: Sequence[Pair], foreign: Sequence[str], rng: random.Random) -> Pair:
    return pairs[n][0], pairs[n + 1][1]


def shuffle(n: int, pairs: Sequence[Pair], foreign: Sequence[str], rng: random.Random) -> Pair:
    return pairs[n][0], rng.choice(pairs)[1]


def use_foreign(n: int, pairs: Sequence[Pair], foreign: Sequence[str], rng: random.Random) -> Pair:
    return pairs[n][0], rng.choice(foreign)


def halve(n: int, pairs: Sequence[Pair], foreign: Sequence[str], rng: random.Random) -> Pair:
    words = pairs[n][1].split()
    return pairs[n][0], " ".join(words[: max(1, len(words) // 2)])


def leave_untranslated(n: int, pairs: Sequence[Pair], foreign: Sequence[str], rng: random.Random) -> Pair:
    return pairs[n][0], pairs[n][0]


def garble(n: int, pairs: Sequence[Pair], foreign: Sequence[str], rng: random.Random) -> Pair:
    """Return random letters, random words, a loop, or text in a wrong encoding."""
    source, target = pairs[n]
    words = target.split()
    match rng.randrange(4):
        case 0:
            return source, "".join(rng.choices(NOISE, k=len(target)))
        case 1:
            vocabulary = [word for _, other in rng.sample(pairs, 20) for word in other.split()]
            return source, " ".join(rng.choices(vocabulary, k=max(2, len(words))))
        case 2:
            return source, " ".join(words[:3] * (len(words) // 3 + 2))
        case _:
            broken = target.encode().decode("cp1252", "ignore")
            return source, broken if broken != target else "".join(rng.sample(target, len(target)))


Damage = Callable[[int, Sequence[Pair], Sequence[str], random.Random], Pair]
DAMAGES: dict[str, Damage] = {
    "shifted": shift,
    "shuffled": shuffle,
    "foreign": use_foreign,
    "half": halve,
    "untranslated": leave_untranslated,
    "garbage": garble,
}


def damage_pairs(
    pairs: Sequence[Pair], foreign: Sequence[str], rate: float, seed: int
) -> tuple[list[Pair], NDArray[np.str_]]:
    """Return the pairs, a share of them damaged in all ways in turn, and the damage of each."""
    rng = random.Random(seed)
    damaged, labels = list(pairs), [GOOD] * len(pairs)
    chosen = rng.sample(range(len(pairs) - 1), int(rate * len(pairs)))
    for number, n in enumerate(chosen):
        name = list(DAMAGES)[number % len(DAMAGES)]
        pair = DAMAGES[name](n, pairs, foreign, rng)
        if pair != pairs[n] and all(side.strip() for side in pair):
            damaged[n], labels[n] = pair, name
    return damaged, np.array(labels)


# ---- judging


def write_pairs(pairs: Sequence[Pair], files: Sequence[Path]) -> None:
    for side, file in enumerate(files):
        file.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8", newline="\n")


def run_judge(files: Sequence[Path], languages: Pair, out: Path, count: int) -> NDArray[np.float64]:
    """Return the score of each line; 0 of lines that cannot be read."""
    recipe = make_recipe(files, languages)
    judge_corpus(recipe, out, JudgeOptions(), report_progress=lambda stage, done, total: None)
    scores = np.zeros(count)
    for _, line, score, _ in read_rows(out):
        scores[line - 1] = score
    return scores


def make_recipe(files: Sequence[Path], languages: Pair) -> Recipe:
    corpus = CorpusConfig(source=languages[0], target=languages[1])
    return Recipe(corpus=corpus, train=(InputConfig(files=tuple(map(str, files)), name="train"),))


def evaluate_scores(
    scores: NDArray[np.float64], labels: NDArray[np.str_], pairs: Sequence[Pair], rate: float
) -> dict[str, Any]:
    """Return AUROC, and what is kept: the best 1 - rate of the pairs, and those that score 0.5 or more."""
    is_good = labels == GOOD
    is_short = np.array([len(source.split()) <= SHORT_WORDS for source, _ in pairs])
    result: dict[str, Any] = {"auroc": compute_auroc(scores, is_good)}
    for name in DAMAGES:
        chosen = is_good | (labels == name)
        result[f"auroc {name}"] = compute_auroc(scores[chosen], is_good[chosen])
    for name, threshold in (("best", float(np.quantile(scores, rate))), ("0.5", 0.5)):
        is_kept = scores >= threshold
        result[f"kept good, {name}"] = float(is_kept[is_good].mean())
        result[f"kept short good, {name}"] = float(is_kept[is_good & is_short].mean())
        result[f"kept damaged, {name}"] = float(is_kept[~is_good].mean())
    return result


# ---- translation


def train_and_score(
    recipe: Recipe, folder: Path, test: tuple[list[str], list[str]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Prepare, train and return the BLEU of the test set; what is complete in the folder is kept."""
    from manyheads.data.prepare import prepare
    from manyheads.data.store import Store
    from manyheads.evaluate.bleu import bleu_and_length_ratio, bleu_tokenizer
    from manyheads.loading import load
    from manyheads.presets import get_preset
    from manyheads.train.run import train

    if (folder / "bleu.json").exists():
        return dict(json.loads((folder / "bleu.json").read_text()))
    if (folder / "data").exists():
        Store.open(folder / "data")
    else:
        prepare(recipe.override([f"subwords.vocab_size={arguments.vocab_size}"]), folder / "data")
    config = get_preset(arguments.preset)
    training = replace(config.train, steps=arguments.steps, warmup=min(4000, max(1, arguments.steps // 4)))
    data = DataConfig(folder=str(folder / "data"), batch_tokens=arguments.batch_tokens)
    config = replace(config, train=training, data=data).override(arguments.set)
    if train(config, folder / "run", device=arguments.device) == "stopped":
        raise KeyboardInterrupt
    translator = load(folder / "run" / "model", device=arguments.device)
    hypotheses = [result.text for result in translator.translate(test[0], beam=1, split=False)]
    tokenizer = bleu_tokenizer(translator.target_language)
    score = bleu_and_length_ratio(hypotheses, [test[1]], tokenizer, BOOTSTRAP_SAMPLES)[0]
    result = {"bleu": score.value, "margin_of_error": score.margin_of_error, "signature": score.signature}
    write_result(folder / "bleu.json", result)
    return result


def measure_recovery(
    pairs: list[Pair], out: Path, languages: Pair, rate: float, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Train on clean, damaged and kept pairs, and return their BLEU and the share of the loss recovered.

    The clean pairs are the same at every rate, and trained on once.
    """
    test = read_text(arguments.test[0], None), read_text(arguments.test[1], None)
    folder = out / f"{rate}"
    clean, damaged = ([own / f"train.{language}" for language in languages] for own in (out, folder))
    write_pairs(pairs, clean)
    recipe = make_recipe(damaged, languages)
    kept = replace(recipe, clean=replace(recipe.clean, judged=str(folder / "judged")))
    scores = {
        "clean": train_and_score(make_recipe(clean, languages), out / "clean", test, arguments),
        "damaged": train_and_score(recipe, folder / "damaged", test, arguments),
        "kept": train_and_score(kept, folder / "kept", test, arguments),
    }
    lost, regained = (scores[name]["bleu"] - scores["damaged"]["bleu"] for name in ("clean", "kept"))
    return {**scores, "lost": lost, "recovered": regained / lost if lost > 0 else None}


def measure_rate(
    pairs: list[Pair],
    foreign: list[str],
    rate: float,
    languages: Pair,
    out: Path,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Judge the pairs with a share of them damaged, and train models if there is a test set."""
    damaged, labels = damage_pairs(pairs, foreign, rate, arguments.seed)
    folder = out / f"{rate}"
    folder.mkdir(exist_ok=True)
    if not (folder / "judged.json").exists():
        files = [folder / f"train.{language}" for language in languages]
        write_pairs(damaged, files)
        shutil.rmtree(folder / "judged", ignore_errors=True)
        start = time.perf_counter()
        scores = run_judge(files, languages, folder / "judged", len(pairs))
        seconds = time.perf_counter() - start
        evaluated = evaluate_scores(scores, labels, pairs, rate)
        write_result(folder / "judged.json", {"rate": rate, "seconds": seconds, **evaluated})
    result = dict(json.loads((folder / "judged.json").read_text()))
    if arguments.test:
        result["bleu"] = measure_recovery(pairs, out, languages, rate, arguments)
    return result


def write_result(file: Path, result: Any) -> None:
    """Write JSON, complete or not at all."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs=2, help="source and target file, named after their languages")
    parser.add_argument("--foreign", required=True, help="text of another language")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--skip", type=int, default=0, help="lines to skip at the start of both files")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test", nargs=2, help="source and target of a test set: also train models")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--vocab-size", type=int, default=16_000)
    parser.add_argument("--batch-tokens", type=int, default=8_000)
    parser.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE", help="keys of all runs")
    parser.add_argument("--out", type=Path, help="folder for texts and runs; by default they are not kept")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    languages = [strip_compression_suffix(file).suffix[1:] for file in arguments.files]
    sides = [read_text(file, arguments.pairs, arguments.skip) for file in arguments.files]
    pairs = list(zip(*sides, strict=True))
    foreign = read_text(arguments.foreign, None)
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        results = []
        for rate in arguments.rates:
            results.append(measure_rate(pairs, foreign, rate, (languages[0], languages[1]), out, arguments))
            print(json.dumps(results[-1], indent=1), flush=True)
            if arguments.json:
                write_result(arguments.json, results)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("judge.py: stopped; the same command goes on") from None

"""Make triplets that only word order decides: which of two texts follows A, if both have the same sentences?

    python examples/hold_out.py laws.jsonl.gz split
    python examples/paper/order_triplets.py split/train/laws.jsonl.gz split/held_out/laws.jsonl.gz TOKENIZER \\
        --length 256 512 1024 --output order

A ends at some sentence of a statute, B follows, and C has the sentences of B in another order, whose neighbouring
sentences share about as many words as those of B. Each of A and B has as many whole sentences as fit into half of a
pair of --length tokens of TOKENIZER, a folder of a saved tokenizer. B and C have the same tokens, as often. The label
is random. OUTPUT/256 has train.jsonl, validation.jsonl and test.jsonl, and so on for each length, with the same places
in the same statutes in the same rows: a longer text contains the shorter one. OUTPUT/statutes.json has the number of
the statute of each test row, for a bootstrap clustered by statute.

Training and validation triplets are from the first file, test triplets from the second; no statute, nor another with
its title, is in two splits. Texts are cleaned as by statute_triplets.py; parentheses, enumerations and references to
what was said above are taken out too. Each statute gives a triplet in turn until there are enough.

A table says how often simple cues tell B from C, each by a logistic regression on the training triplets.
"""

import argparse
import json
import random
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from statute_triplets import NUMBER, SPLITS, read_laws
from transformers import PreTrainedTokenizerBase

from modeling_roformer.files import output_folder
from modeling_roformer.output.progress import tracked
from modeling_roformer.tokenization.segmentation import JiebaSegmenter
from modeling_roformer.training import (
    ScriptParser,
    TrainingError,
    exit_on_error,
    load_tokenizer,
    paired_bootstrap,
    random_seed,
    spread,
    triplet_decisions,
    triplet_results,
)

SENTENCE = re.compile(r"[^。]+。")  # what follows an article's last 。 is a heading or a table
MIN_SENTENCES = 4  # of B: 24 orders
FULL = 2 / 3  # share of its tokens that A and B have at least
EXCHANGES = 200  # of two sentences, that are tried to bring C nearer to B
# What is said in parentheses, their numbers among it, characters that are not printed, and what tells where a sentence
# stands.
REMOVED = re.compile(
    rf"（[^（）]*）|[（）\u200b\ue000-\uf8ff]|[上前]述(?:规定的?)?|第{NUMBER}[编章节]|"
    rf"(?:^|(?<=[：；。]))(?:{NUMBER}[、.．]|[第其]{NUMBER}[，、]|{NUMBER}是|首先，?|其次，?|再次，|最后，|此外，?|另外，?)"
)


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    parser.add_argument("laws", type=Path, help="statutes for training and validation: JSON Lines or text, also as .gz")
    parser.add_argument("held_out", type=Path, help="statutes for testing")
    parser.add_argument("tokenizer", help="folder of a saved tokenizer, which counts the tokens")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--length", type=int, nargs="+", default=[256, 512, 1024], help="maximum tokens of a pair")
    parser.add_argument("--field", default="text", help="field of JSON Lines with the statute")
    parser.add_argument("--train", type=int, default=3000, help="training triplets")
    parser.add_argument("--validation", type=int, default=300, help="validation triplets")
    parser.add_argument("--test", type=int, default=1000, help="test triplets")
    parser.add_argument("--seed", type=random_seed, default=0, help="seed of the places, the orders and the labels")
    return parser.parse_args()


def sentences_of(articles: list[str]) -> list[str]:
    """Return the sentences of articles, without words that reveal their place."""
    found = (SENTENCE.findall(REMOVED.sub("", article)) for article in articles)
    return [cleaned for of in found for sentence in of if len(cleaned := sentence.lstrip("、，；：")) > 1]


def another_order(similar: np.ndarray, some: random.Random) -> list[int]:
    """Return another order of the rows of `similar`, 0 first, whose neighbours are about as similar as 0, 1, 2, …"""
    given = order = [*range(len(similar))]

    def cues(order: list[int]) -> np.ndarray:
        neighbours = similar[order[:-1], order[1:]]
        return np.array([neighbours[0], neighbours.sum()])

    while order == given:
        order = [0, *some.sample(given[1:], len(given) - 1)]
    distance = abs(cues(order) - cues(given)).sum()
    for _ in range(EXCHANGES):
        one, other = some.sample(given[1:], 2)
        changed = order.copy()
        changed[one], changed[other] = order[other], order[one]
        if changed != given and (changed_distance := abs(cues(changed) - cues(given)).sum()) < distance:
            order, distance = changed, changed_distance
    return order


def triplets_of(
    sentences: list[str],
    lengths: list[int],
    tokenizer: PreTrainedTokenizerBase,
    vectorizer: TfidfVectorizer,
    some: random.Random,
) -> Iterator[dict[int, tuple[str, str, str]]]:
    """Yield A, B and C of each length, around each place in random order that has them at all lengths."""

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]

    ends = np.cumsum([0, *(len(ids(sentence)) for sentence in sentences)])
    special = tokenizer.num_special_tokens_to_add(pair=True)
    vectors = vectorizer.transform(sentences)
    for place in some.sample(range(1, len(sentences)), max(0, len(sentences) - 1)):
        found = {}
        for length in lengths:
            most = (length - special) // 2
            start = int(np.searchsorted(ends, ends[place] - most))
            end = int(np.searchsorted(ends, ends[place] + most, side="right")) - 1
            b = sentences[place:end]
            if min(ends[place] - ends[start], ends[end] - ends[place]) < FULL * most or len({*b}) < max(
                MIN_SENTENCES, len(b)
            ):
                break
            near = vectors[place - 1 : end]
            order = another_order((near @ near.T).toarray(), some)
            c = [sentences[place - 1 + row] for row in order[1:]]
            texts = tuple(map("".join, (sentences[start:place], b, c)))
            of_a, of_b, of_c = map(ids, texts)
            # A word may cross the end of a sentence, and unknown words may make two sentences one.
            if sorted(of_b) != sorted(of_c) or of_b == of_c or len(of_a) + len(of_b) + special > length:
                break
            found[length] = texts
        else:
            yield found


def make_triplets(
    laws: dict[str, list[str]],
    number: int,
    lengths: list[int],
    tokenizer: PreTrainedTokenizerBase,
    vectorizer: TfidfVectorizer,
    some: random.Random,
) -> list[dict[int, dict]]:
    """Return triplets by length, each with its statute: one of each statute in turn, until there are enough."""
    waiting = deque(
        (name, triplets_of(sentences, lengths, tokenizer, vectorizer, some)) for name, sentences in laws.items()
    )
    labels = some.sample(("BC" * number)[:number], number)
    rows = []
    while waiting and len(rows) < number:
        name, triplets = waiting.popleft()
        if found := next(triplets, None):
            label = labels[len(rows)]
            row = {}
            for length, (a, b, c) in found.items():
                first, second = (b, c) if label == "B" else (c, b)
                row[length] = {"A": a, "B": first, "C": second, "label": label, "statute": name}
            rows.append(row)
            waiting.append((name, triplets))
    return rows


def cues(triplets: list[dict], name: str, vectorizer: TfidfVectorizer) -> dict[str, sparse.csr_matrix]:
    """Return features of each triplet that may reveal whether the text B or C follows A."""
    texts = [SENTENCE.findall(triplet[name]) for triplet in triplets]
    before = [SENTENCE.findall(triplet["A"])[-1] for triplet in triplets]
    vectors = vectorizer.transform(sentence for a, text in zip(before, texts, strict=True) for sentence in (a, *text))
    ends = np.cumsum([0, *(1 + len(text) for text in texts)])
    starts = ends[:-1] + 1
    similar = np.ravel(vectors[:-1].multiply(vectors[1:]).sum(axis=1))  # of each sentence and the next
    places = np.concatenate([[0, *np.linspace(-1, 1, len(text))] for text in texts])
    lengths = [[*map(len, text)] for text in texts]
    numbers = {
        "TF-IDF of A's last sentence and the first": similar[starts - 1],
        "TF-IDF of neighbouring sentences": [similar[a : b - 1].mean() for a, b in zip(starts, ends[1:], strict=True)],
        "place of the shortest sentence": [np.argmin(of) / len(of) for of in lengths],
        "place of the longest sentence": [np.argmax(of) / len(of) for of in lengths],
    }
    return {
        "bag of words": vectorizer.transform(triplet[name] for triplet in triplets),
        **{cue: sparse.csr_matrix(values).T.tocsr() for cue, values in numbers.items()},
        "words of the first sentence": vectors[starts],
        "words of the last sentence": vectors[ends[1:] - 1],
        "words, weighted by place": sparse.csr_matrix((places, np.arange(len(places)), ends)) @ vectors,
    }


def known_from(train: list[dict], test: list[dict], vectorizer: TfidfVectorizer) -> dict[str, float]:
    """Return the test accuracy of each cue, and of all together. A tie counts half."""

    def differences(triplets: list[dict]) -> dict[str, sparse.csr_matrix]:
        of_b, of_c = (cues(triplets, name, vectorizer) for name in "BC")
        found = {name: of_b[name] - of_c[name] for name in of_b}
        return {**found, "all of these": sparse.hstack([*found.values()], format="csr")}

    known, asked = differences(train), differences(test)
    labels, expected = (["BC".index(triplet["label"]) for triplet in of] for of in (train, test))
    accuracies = {}
    for name in known:
        classifier = LogisticRegression(solver="liblinear", fit_intercept=False, random_state=0)
        chosen = GridSearchCV(classifier, {"C": [0.01, 0.1, 1, 10, 100]}).fit(known[name], labels)
        scores = chosen.decision_function(asked[name])
        accuracies[name] = float(np.mean(triplet_results(triplet_decisions(np.c_[-scores, scores]), expected)))
    return accuracies


def tables(runs: dict[tuple[str, int], dict[str, dict]], statutes: list[int]) -> dict[str, Table]:
    """Return the accuracies of fine-tuned models, and their differences, with intervals over statutes.

    runs: (position encoding, length) -> seed -> its results by finetune_triplet.py. statutes: those of the test rows.
    """
    accuracy = Table("positions, tokens", "seeds", "accuracy, %", "decided")
    compared = Table("paired bootstrap, points of accuracy", "against", "difference, 95 % interval")
    for (encoding, tokens), seeds_of_run in sorted(runs.items()):
        name = f"{encoding}, {tokens:,}"
        decided = np.mean([result != 0.5 for one in seeds_of_run.values() for result in one["results"]])
        accuracy.add_row(
            name,
            str(len(seeds_of_run)),
            spread([100 * one["test"] for one in seeds_of_run.values()], ".1f"),
            f"{decided:.0%}",
        )
        for (other, less), theirs in sorted(runs.items()):
            if tokens > less if encoding == other else encoding == "rotary" and tokens == less:
                seeds = [seed for seed in seeds_of_run if seed in theirs]
                cases = [statutes[row - 1] for seed in seeds for row in seeds_of_run[seed]["rows"]]
                results = (
                    [result for seed in seeds for result in run[seed]["results"]] for run in (seeds_of_run, theirs)
                )
                compared.add_row(name, f"{other}, {less:,}", str(paired_bootstrap(*results, cases)))
    return {"accuracy": accuracy, "comparisons": compared}


def main() -> None:
    chosen = read_arguments()
    some, tokenizer, lengths = random.Random(chosen.seed), load_tokenizer(chosen.tokenizer), sorted({*chosen.length})
    with output_folder(chosen.output) as folder:
        held_out, laws = (
            {name: sentences_of(articles) for name, _, articles in read_laws(source, chosen.field, 2)}
            for source in (chosen.held_out, chosen.laws)
        )
        names = [name for name in laws if name not in held_out]
        some.shuffle(names)
        first = round(len(names) * chosen.validation / (chosen.validation + chosen.train))
        statutes = {"train": names[first:], "validation": names[:first], "test": [*held_out]}
        if not any(laws[name] for name in statutes["train"]):
            raise TrainingError(
                f"{chosen.laws} has no statute for training besides those of {chosen.held_out} and of validation: name "
                "a file with more, or give a smaller --validation"
            )
        vectorizer = TfidfVectorizer(analyzer=JiebaSegmenter(), sublinear_tf=True)
        vectorizer.fit(sentence for name in statutes["train"] for sentence in laws[name])
        triplets = {}
        for part, statutes_of_part in tracked(statutes.items(), "triplets"):
            wanted = getattr(chosen, part)
            sentences = {name: held_out[name] if part == "test" else laws[name] for name in statutes_of_part}
            triplets[part] = make_triplets(sentences, wanted, lengths, tokenizer, vectorizer, some)
            if len(triplets[part]) < wanted:
                raise TrainingError(
                    f"--{part} {wanted:,}: its {len(statutes_of_part):,} statutes give {len(triplets[part]):,} "
                    "triplets: give fewer, or another --length"
                )
        known = {}
        for length in tracked(lengths, "simple cues"):
            (folder / str(length)).mkdir()
            for part in SPLITS:
                lines = (json.dumps(row[length], ensure_ascii=False) + "\n" for row in triplets[part])
                (folder / str(length) / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
            known[length] = known_from(
                *([row[length] for row in triplets[part]] for part in ("train", "test")), vectorizer
            )
        of_test = [row[lengths[0]]["statute"] for row in triplets["test"]]
        numbers = [statutes["test"].index(name) for name in of_test]
        (folder / "statutes.json").write_text(json.dumps({"test": numbers}) + "\n", encoding="utf-8")

    console = Console(markup=False)
    table = Table("")
    for title in ("triplets", "statutes", "tokens of A", "of B", "sentences of B"):
        table.add_column(title, justify="right")
    for length in lengths:
        for part in SPLITS:
            rows = [row[length] for row in triplets[part]]
            texts = ([triplet[name] for triplet in rows] for name in "AB")
            ids = (
                tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
                for text in texts
            )
            tokens = (f"{np.mean([*map(len, of_texts)]):.0f}" for of_texts in ids)
            sentences = np.mean([triplet["B"].count("。") for triplet in rows])
            count = len({triplet["statute"] for triplet in rows})
            table.add_row(f"{length}, {part}", f"{len(rows):,}", f"{count:,}", *tokens, f"{sentences:.1f}")
    console.print(table)
    table = Table("known from", *map(str, lengths))
    for cue in known[lengths[0]]:
        table.add_row(cue, *(f"{of[cue]:.1%}" for of in known.values()))
    console.print(table)


if __name__ == "__main__":
    with exit_on_error("order_triplets"):
        main()

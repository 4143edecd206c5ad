"""examples/paper/wikitext.py: articles in lines, some held out, and a vocabulary from the others."""

import gzip
import random

from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script

from modeling_roformer.training import load_tokenizer

SCRIPT = REPOSITORY / "examples" / "paper" / "wikitext.py"
ARTICLES = [
    (
        f" \n = Lobster {number} = \n \n The lobster is a <unk> of 1 @,@ {number}00 g , well @-@ known .\n"
        f" \n = = Range = = \n \n It lives in the sea number {number} .\n = = = Deep = = = \n Very deep .\n"
    )
    for number in range(1, 7)
]
LINE = (
    "Lobster {0} The lobster is a <unk> of 1,{0}00 g , well-known . Range It lives in the sea number {0} . Deep Very "
    "deep ."
)


def test_articles_and_vocabulary(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with gzip.open("wiki.gz", "wt", encoding="utf-8") as file:
        file.write("".join(ARTICLES))
    arguments = ["wiki.gz", "--output", "english", "--held-out", 3, "--size", 90]
    code, printed, _ = run_script(SCRIPT, arguments, monkeypatch, capfd)
    assert code == 0 and "english: 4 articles, 2 held out, a vocabulary of" in printed
    for name, numbers in ("train", (1, 2, 4, 5)), ("held_out", (3, 6)):
        lines = (tmp_path / "english" / f"{name}.txt").read_text().splitlines()
        assert lines == [LINE.format(number) for number in numbers]
    entries = (tmp_path / "english" / "vocab.txt").read_text().splitlines()
    assert entries[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] and entries[5:] == sorted(entries[5:])
    tokenizer = load_tokenizer("english/vocab.txt")
    assert len(tokenizer) <= 90
    ids = tokenizer("The lobster, deep!")["input_ids"]
    assert ids.count(tokenizer.unk_token_id) == 1  # "!", which no article has
    assert tokenizer.decode(ids[1:-2]) == "the lobster, deep"


def test_the_vocabulary_is_the_same_each_time(monkeypatch):
    """Although many pairs are equally frequent, and the trainer numbers them in the order of a hash table."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from wikitext import word_pieces

    some = random.Random(0)
    words = ["".join(some.choices("abcdefghij", k=6)) for _ in range(300)]
    assert len({frozenset(word_pieces([" ".join(words * 2)], 200)) for _ in range(8)}) == 1


def test_too_few_articles(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wiki.txt").write_text(ARTICLES[0])
    code, _, complaint = run_script(SCRIPT, ["wiki.txt", "--output", "english"], monkeypatch, capfd)
    assert code == 1 and not (tmp_path / "english").exists()
    assert_states(complaint, "1 article", "--held-out")
    code, _, complaint = run_script(SCRIPT, ["none.txt", "--output", "english"], monkeypatch, capfd)
    assert code == 1 and "none.txt" in complaint

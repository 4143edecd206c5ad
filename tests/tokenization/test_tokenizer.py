"""The tokenizer's ids, against bert4keras and jieba (recorded), however it was loaded and wherever it runs."""

import copy
import gzip
import itertools
import json
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.messages import assert_states, refused
from helpers.paths import SHARED, needs_shared
from helpers.textbook import make_jieba
from helpers.tokenizer_files import FIXTURES, VOCABULARY, WORD_VOCABULARY
from transformers import AutoTokenizer
from transformers.models.roformer.tokenization_roformer import RoFormerTokenizer as TheirTokenizer
from transformers.utils.logging import warning_once

import modeling_roformer  # noqa: F401
from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary import VocabularyError, has_words


def read_lines(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


TEXTS = read_lines(FIXTURES / "texts.jsonl")
PAIRS = read_lines(FIXTURES / "pairs.jsonl")
ALL_TEXTS = [row["text"] for row in TEXTS]


def folder_with(tmp_path, name="vocab.txt", **config):
    """A folder with a vocab.txt, and a tokenizer_config.json where one is given."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    shutil.copy(FIXTURES / name, folder / "vocab.txt")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def column(name):
    return [row[name] for row in TEXTS]


def test_ids_are_those_of_bert4keras(words, characters):
    assert words.word_segmentation == "jieba"
    assert words(ALL_TEXTS).input_ids == column("word_ids")
    assert characters.word_segmentation is None
    assert characters(ALL_TEXTS).input_ids == column("char_vocab_ids")
    # One by one, and where the encodings are built as well.
    for row in TEXTS:
        assert words(row["text"]).input_ids == row["word_ids"]
        assert words(row["text"])[0].ids == row["word_ids"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"word_segmentation": "jieba"}, "word_ids"),
        ({"word_segmentation": None}, "char_ids"),
        ({"do_lower_case": False}, "cased_ids"),
        ({"user_dict": str(FIXTURES / "user_dict.txt")}, "user_dict_ids"),
        ({"user_dict": (FIXTURES / "user_dict.txt").read_text(encoding="utf-8").splitlines()}, "user_dict_ids"),
    ],
)
def test_options_give_bert4keras_ids_and_survive_saving(tmp_path, options, name):
    tokenizer = RoFormerTokenizer.from_pretrained(folder_with(tmp_path), **options)
    assert tokenizer(ALL_TEXTS).input_ids == column(name)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = RoFormerTokenizer.from_pretrained(tmp_path / "saved")
    assert again(ALL_TEXTS).input_ids == column(name)
    assert (tmp_path / "saved" / "vocab.txt").read_bytes() == (FIXTURES / "vocab.txt").read_bytes()
    saved = json.loads((tmp_path / "saved" / "tokenizer.json").read_text(encoding="utf-8"))
    assert saved["model"]["type"] == "WordPiece"
    assert saved["model"]["vocab"] == again.get_vocab()


@pytest.mark.parametrize("first", ["[MASK]是首都", ["[MASK]", "是首都"]])
@pytest.mark.parametrize("second", ["它在北方", "它在[MASK]", ""])
def test_a_mask_in_either_half_of_a_pair(words, first, second):
    split = isinstance(first, list)
    pair = (first, [second]) if split else (first, second)
    found = words(*pair, is_split_into_words=split)
    with_offsets = words(*pair, is_split_into_words=split, return_offsets_mapping=True)
    assert found.input_ids == with_offsets.input_ids
    halves = [words(half, is_split_into_words=split, add_special_tokens=False).input_ids for half in pair]
    cls, sep = words.cls_token_id, words.sep_token_id
    assert found.input_ids == [cls, *halves[0], sep, *halves[1], sep]
    assert found.token_type_ids == [0] * (len(halves[0]) + 2) + [1] * (len(halves[1]) + 1)


def test_pairs_and_their_segments(words):
    batch = words([pair["first"] for pair in PAIRS], [pair["second"] for pair in PAIRS])
    assert batch.input_ids == [pair["token_ids"] for pair in PAIRS]
    assert batch.token_type_ids == [pair["segment_ids"] for pair in PAIRS]
    for pair in PAIRS[:20]:
        single = words(pair["first"], pair["second"])
        assert single.input_ids == pair["token_ids"]
        assert single.token_type_ids == pair["segment_ids"] == single[0].type_ids


@needs_shared
@pytest.mark.parametrize(("folder", "count"), [("tokenization", 2152), ("roformer_chinese_base", 1420)])
def test_texts_have_the_ids_of_bert4keras(folder, count):
    (path,) = (SHARED / folder).glob("reference.jsonl*")
    rows = read_lines(path)
    texts = [row["text"] for row in rows]
    assert len(rows) == count
    tokenizer = RoFormerTokenizer.from_pretrained(SHARED / folder)
    assert tokenizer(texts).input_ids == [row["word_ids"] for row in rows]
    tokenizer = RoFormerTokenizer.from_pretrained(SHARED / folder, word_segmentation=None)
    assert tokenizer(texts).input_ids == [row["char_ids"] for row in rows]


@needs_shared
def test_reference_pairs_and_chinese_bert():
    pairs = read_lines(SHARED / "tokenization" / "pairs.jsonl")
    tokenizer = RoFormerTokenizer.from_pretrained(SHARED / "tokenization")
    batch = tokenizer([pair["first"] for pair in pairs], [pair["second"] for pair in pairs])
    assert batch.input_ids == [pair["token_ids"] for pair in pairs]
    assert batch.token_type_ids == [pair["segment_ids"] for pair in pairs]
    rows = read_lines(SHARED / "tokenization" / "bert_chars.jsonl")
    tokenizer = RoFormerTokenizer.from_pretrained(SHARED / "bert_chinese")
    assert tokenizer.word_segmentation is None
    assert tokenizer([row["text"] for row in rows]).input_ids == [row["token_ids"] for row in rows]


# However it is loaded


def transformers_4_tokenizer_json(vocabulary, lowercase, added):
    """tokenizer.json as transformers 4 saves RoFormerTokenizerFast."""
    special = [(vocabulary[token], token, True) for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    extra = [(len(vocabulary) + i, token, False) for i, token in enumerate(added)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    tokens = [{"id": i, "content": t, "special": s, "normalized": not s, **flags} for i, t, s in special + extra]
    normalizer = {"clean_text": True, "handle_chinese_chars": False, "strip_accents": None, "lowercase": lowercase}
    ends = {name: [f"[{name.upper()}]", vocabulary[f"[{name.upper()}]"]] for name in ("sep", "cls")}
    model = {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return {
        "version": "1.0",
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": None,
        "added_tokens": tokens,
        "normalizer": {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", **ends},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", **model, "vocab": vocabulary},
    }


@pytest.mark.parametrize(("lowercase", "name"), [(True, "word_ids"), (False, "cased_ids")])
def test_folder_with_tokenizer_json_of_transformers_4(tmp_path, words, lowercase, name):
    saved = transformers_4_tokenizer_json(dict(words.get_vocab()), lowercase, ["小词典外"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path)
    assert tokenizer.do_lower_case is lowercase
    assert tokenizer(ALL_TEXTS).input_ids == column(name)
    number = len(saved["model"]["vocab"])
    assert tokenizer("今天小词典外")["input_ids"][-2] == number
    assert len(tokenizer) == number + 1


@pytest.mark.parametrize("keep", [("tokenizer.json",), ("tokenizer.json", "tokenizer_config.json")])
@pytest.mark.parametrize(("lowercase", "name"), [(True, "word_ids"), (False, "cased_ids")])
def test_folder_saved_by_transformers_5(tmp_path, words, keep, lowercase, name):
    theirs = TheirTokenizer(dict(words.get_vocab()), do_lower_case=lowercase)
    theirs.add_tokens(["小词典外"])
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "kept").mkdir()
    for file in keep:
        shutil.copy(tmp_path / "theirs" / file, tmp_path / "kept" / file)
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path / "kept")
    assert tokenizer(ALL_TEXTS).input_ids == column(name)
    assert tokenizer.get_vocab() == theirs.get_vocab()


def test_added_and_renamed_tokens_survive_saving(tmp_path):
    tokenizer = RoFormerTokenizer(VOCABULARY, model_max_length=77, padding_side="left")
    tokenizer.add_tokens(["新词新词", "Ünter"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["<e>"]})
    text = "今天新词新词<e>天气unter。"
    before = tokenizer(text).input_ids
    n = len(tokenizer) - 3
    assert [i for i in before if i >= n] == [n, n + 2, n + 1]
    tokenizer.save_pretrained(tmp_path)
    again = RoFormerTokenizer.from_pretrained(tmp_path)
    assert again(text).input_ids == before
    assert (again.model_max_length, again.padding_side) == (77, "left")
    assert again("今天<e>", split_special_tokens=True).input_ids != again("今天<e>").input_ids


# What plain transformers does with what we save

PLAIN = """
import json, sys
import transformers
assert "modeling_roformer" not in sys.modules
answers = {}
for folder, texts in json.loads(sys.stdin.read()).items():
    for name in ("AutoTokenizer", "RoFormerTokenizer", "PreTrainedTokenizerFast"):
        try:
            tokenizer = getattr(transformers, name).from_pretrained(folder)
            answer = [type(tokenizer).__name__, tokenizer(texts)["input_ids"]]
        except Exception as error:
            answer = str(error)
        answers.setdefault(folder, {})[name] = answer
print("\\n" + json.dumps(answers))
"""
BEYOND = [{"word_segmentation": None}, {"user_dict": ["非常好"]}, {"word_segmentation": list}]
SIMPLE = [text for text in ALL_TEXTS[:20] if re.fullmatch(r"[\u4e00-\u9fff，。：0-9,]*", text)]


@pytest.fixture(scope="module")
def plain_transformers(tmp_path_factory, words, characters):
    """Return a function from a folder's name to the output of a Python without this package."""
    root = tmp_path_factory.mktemp("saved")
    tokenizers = {"words": words, "characters": characters}
    for number, options in enumerate(BEYOND):
        tokenizer = RoFormerTokenizer(VOCABULARY, truncation_side="left", **options)
        tokenizers[f"beyond {number}"] = tokenizers[f"beyond {number} without config"] = tokenizer
    tokenizers["words without tokenizer.json"] = words
    for name, tokenizer in tokenizers.items():
        tokenizer.save_pretrained(root / name, legacy_format=name.endswith("without tokenizer.json"))
        if not name.endswith("without config"):
            (root / name / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    folders = json.dumps({str(root / name): SIMPLE for name in tokenizers})
    done = subprocess.run([sys.executable, "-c", PLAIN], input=folders, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    return lambda name: (root / name, answers[str(root / name)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["words", "characters"])
def test_plain_transformers_gives_the_same_ids(plain_transformers, words, characters, name):
    assert len(SIMPLE) > 5
    expected = {"words": words, "characters": characters}[name](SIMPLE).input_ids
    _, answers = plain_transformers(name)
    for auto in ("AutoTokenizer", "RoFormerTokenizer"):
        assert answers[auto] == ["RoFormerTokenizer", expected]


@pytest.mark.slow
@pytest.mark.parametrize("without_config", ["", " without config"])
@pytest.mark.parametrize("number", range(len(BEYOND)))
def test_plain_transformers_refuses_what_it_cannot_do(plain_transformers, number, without_config):
    folder, answers = plain_transformers(f"beyond {number}{without_config}")
    for answer in answers.values():
        assert isinstance(answer, str)
        assert "modeling_roformer" in answer
    given = {key: value for key, value in BEYOND[number].items() if callable(value)}
    again = RoFormerTokenizer.from_pretrained(folder, **given)
    assert again.truncation_side == "left"
    expected = RoFormerTokenizer(VOCABULARY, **BEYOND[number])
    assert again(ALL_TEXTS).input_ids == expected(ALL_TEXTS).input_ids


@pytest.mark.slow
def test_plain_transformers_refuses_words_without_tokenizer_json(plain_transformers, words):
    """From vocab.txt alone it would find no words, and give other ids."""
    folder, answers = plain_transformers("words without tokenizer.json")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "tokenizer_config.json", "vocab.txt"]
    assert all(isinstance(answer, str) for answer in answers.values())
    assert "modeling_roformer" in answers["RoFormerTokenizer"]  # the others miss tokenizer.json
    assert RoFormerTokenizer.from_pretrained(folder)(ALL_TEXTS).input_ids == words(ALL_TEXTS).input_ids


def test_added_tokens_are_saved_without_tokenizer_json(words, tmp_path):
    tokenizer = copy.deepcopy(words)
    tokenizer.add_tokens(["明月照我"])
    tokenizer.save_pretrained(tmp_path, legacy_format=True)
    again = RoFormerTokenizer.from_pretrained(tmp_path)
    assert again.get_added_vocab() == tokenizer.get_added_vocab()
    assert again("看明月照我还").input_ids == tokenizer("看明月照我还").input_ids


# Wherever it runs


def test_copies_give_the_same_ids(words):
    words(ALL_TEXTS, truncation=True, max_length=9, padding=True)
    with_user_words = RoFormerTokenizer(VOCABULARY, user_dict=str(FIXTURES / "user_dict.txt"))
    for tokenizer, name in ((words, "word_ids"), (with_user_words, "user_dict_ids")):
        for clone in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
            assert clone(ALL_TEXTS).input_ids == column(name)
    assert len(pickle.dumps(words)) < 1_000_000  # no dictionary inside


def test_threads_with_different_settings(words):
    def encode(number):
        if number % 2:
            return words(ALL_TEXTS).input_ids
        return words(ALL_TEXTS, truncation=True, max_length=8, padding="max_length").input_ids

    expected = [encode(0), encode(1)]
    fresh = copy.deepcopy(words)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encode, range(12))) == expected * 6
        assert list(pool.map(lambda _: fresh(ALL_TEXTS).input_ids, range(8))) == [expected[1]] * 8


# The command `roformer` is the one process in which the package does not import all of itself.
WITHOUT_TRANSFORMERS = """
import roformer_command
import sys
import modeling_roformer.tokenization as package
from modeling_roformer.tokenization import decoding, segmentation, vocabulary, wordpiece
print(sorted({"transformers", "tokenizers", "torch", "jieba", "rjieba"} & set(sys.modules)))
print(set(package.__all__) <= set(dir(package)), hasattr(package, "Nothing"))
from modeling_roformer.tokenization import *
print(RoFormerTokenizer is RoFormerTokenizerFast is package.RoFormerTokenizer, RoFormerTokenizer.__module__)
"""


def test_all_but_the_tokenizer_does_without_transformers():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRANSFORMERS], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "True False", "True modeling_roformer.tokenization.tokenizer"]


@pytest.mark.slow
def test_of_jieba_only_the_dictionary_is_read(words):
    """Its import warns of escapes that a later Python will refuse. Without rjieba the same words are found."""
    code = (
        "import sys, json\n"
        "from modeling_roformer.tokenization import RoFormerTokenizer, segmentation\n"
        "rows = [json.loads(line) for line in open(sys.argv[2], encoding='utf-8')]\n"
        "texts = [row['text'] for row in rows]\n"
        "for _ in range(2):\n"
        "    for name, options in (('word_ids', {}), ('user_dict_ids', {'user_dict': sys.argv[3]})):\n"
        "        ids = RoFormerTokenizer(sys.argv[1], **options)(texts).input_ids\n"
        "        assert ids == [row[name] for row in rows]\n"
        "    sys.modules['rjieba'] = None\n"
        "    segmentation._cutter.cache_clear()\n"
        "assert not {'jieba', 'datasets'} & sys.modules.keys()\n"
    )
    files = [str(FIXTURES / name) for name in ("vocab.txt", "texts.jsonl", "user_dict.txt")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    # That jieba never finds one of the words, that others have no entry, and nothing else.
    assert re.fullmatch(".*user_dict.*\n.*user_dict.*\n", done.stderr)


@pytest.mark.slow
def test_without_jieba_only_a_user_dict_is_refused():
    code = (
        "import sys; sys.modules['jieba'] = None\n"
        "from modeling_roformer.tokenization import RoFormerTokenizer\n"
        "tokenizer = RoFormerTokenizer(sys.argv[1])\n"
        "assert tokenizer.tokenize('今天的天气非常好。\\ud800今天𠀀') == sys.argv[2].split('|')\n"
        "RoFormerTokenizer(sys.argv[1], user_dict=['非常好'])\n"
    )
    expected = "今天|的|天气|非常|好|。|[UNK]|今天|𠀀"
    done = subprocess.run(
        [sys.executable, "-c", code, VOCABULARY, expected], capture_output=True, text=True, timeout=900
    )
    assert_states(done.stderr.splitlines()[-1], "ImportError", "user_dict", "pip install jieba")


@pytest.mark.live
def test_bert4keras_live(words):
    pytest.importorskip("bert4keras", reason="bert4keras is not installed; its recorded answers are tested above")
    import jieba
    from bert4keras.tokenizers import Tokenizer as Original

    vocabulary = {token: number for token, number in words.get_vocab().items() if token.split() == [token]}
    original = Original(vocabulary, do_lower_case=True, pre_tokenize=lambda text: jieba.cut(text, HMM=False))
    assert words(ALL_TEXTS).input_ids == [original.encode(text)[0] for text in ALL_TEXTS]


NAMES = ["RoFormerTokenizer", "RoFormerTokenizerFast", "RoFormerWordTokenizer"]


@pytest.mark.parametrize(("name", "with_config"), [*itertools.product(NAMES, [True, False]), (None, True)])
def test_auto_tokenizer_finds_ours(tmp_path, name, with_config):
    shutil.copy(FIXTURES / "vocab.txt", tmp_path)
    if name:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "do_lower_case": True}))
    if with_config:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is RoFormerTokenizer
    assert tokenizer(ALL_TEXTS).input_ids == column("word_ids")


def test_vocabulary_without_words_needs_no_asking(tmp_path):
    """Amino acids, the vocabulary of a protein model under model_type roformer."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"LAGVSERTIDPKQNFYMHWC"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizer", "do_lower_case": false}')
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path)
    assert tokenizer.word_segmentation is None
    assert tokenizer.tokenize("Q V [MASK] L") == ["Q", "V", "[MASK]", "L"]


# Warnings


@pytest.fixture
def warned(caplog):
    """The warnings that were given, each once in a process: here, anew."""
    warning_once.cache_clear()
    return lambda: [record.getMessage() for record in caplog.records if "modeling_roformer" in record.name]


@pytest.mark.parametrize("truncation", [True, "longest_first", "only_first"])
def test_truncation_to_no_length_warns(words, warned, truncation):
    text = "今天的天气非常好"
    before = pickle.dumps(words)
    for _ in range(2):
        assert words(text, truncation=truncation).input_ids == words(text).input_ids
        assert words.encode(text, truncation=truncation) == words(text).input_ids
    (warning,) = warned()
    assert_states(warning, f"truncation={truncation!r}", "max_length", "model_max_length")
    assert pickle.dumps(words) == before  # the fingerprint, by which datasets finds its cache


def test_no_warning_where_there_is_a_length_or_no_truncation(words, warned):
    limited = RoFormerTokenizer(VOCABULARY, model_max_length=5)
    assert len(limited("今天的天气非常好", truncation=True).input_ids) == 5
    words("今天", truncation=True, max_length=5)
    words("今天", truncation=True, verbose=False)
    for truncation in (None, False, "do_not_truncate"):
        words("今天", truncation=truncation)
    assert warned() == []


def test_user_words_without_entry_warn(warned):
    lacking = [f"{number}气天" for number in "一二三四五六七"]
    for _ in range(2):
        RoFormerTokenizer(VOCABULARY, user_dict=["今天", *lacking, "天气非 0", lacking[0]])
    (warning,) = warned()
    assert_states(warning, "user_dict", "一气天, 二气天, 三气天, 四气天, 五气天", "2 more")
    assert "六气天" not in warning
    RoFormerTokenizer(VOCABULARY, user_dict=["今天", "气天 5"])
    assert_states(warned()[1], "user_dict", "气天")
    assert "more" not in warned()[1]


def test_user_words_of_the_vocabulary_do_not_warn(warned):
    """Nor those of frequency 0, which jieba is told not to find."""
    tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=["今天", "天气 9000 n", "气天 0", "天气非 9", "天气非 0"])
    assert tokenizer.user_dict
    assert warned() == []


NEVER_FOUND = [
    (["迈克尔·乔丹 9000000"], ["迈克尔·乔丹"], "迈克尔·乔丹退役了"),
    (["<NUM>", "*ST舜船 500 nz"], ["<NUM>", "*ST舜船"], "<NUM>*ST舜船"),
    (["B超 9000000", "b超声 9"], ["B超"], "B超检查，b超检查"),
    (["云计算 5", "Edu Trust认证 2000", "叶  县"], ["Edu Trust认证", "叶  县"], "云计算，Edu Trust认证，叶  县"),
    (["打底裤  5"], ["打底裤 "], "打底裤  5"),
    (
        ["今天\t100", "公园 -5", "公园 3.5 n", "北京\u2028上海"],
        ["今天\t100", "公园 -5", "公园 3.5", "北京\u2028上海"],
        "公园 -5",
    ),
    (["天气 9"], ["天气"], "今天天气"),  # of a frequency lower than that of its characters
    (["天気 9000000", "café 9000000"], ["café"], "天気café"),
]


@pytest.mark.parametrize(("user_dict", "never", "text"), NEVER_FOUND)
def test_words_that_jieba_never_finds_warn(tmp_path, warned, user_dict, never, text):
    """And the ids are those of jieba with its own `load_userdict`."""
    (tmp_path / "user.txt").write_text("\n".join(user_dict), encoding="utf-8", newline="\n")
    for lines in (user_dict, tmp_path / "user.txt"):
        tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=lines)
    (warning,) = [warning for warning in warned() if "never" in warning]
    assert_states(warning, "user_dict", f"never finds {len(never)}", *map(repr, never))
    assert not [word for word in user_dict if word.split()[0] not in " ".join(never) and word.split()[0] in warning]
    cutter = make_jieba()
    cutter.load_userdict(str(tmp_path / "user.txt"))
    assert list(tokenizer._segment(text.lower())) == cutter.lcut(text.lower(), HMM=False)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = RoFormerTokenizer.from_pretrained(tmp_path / "saved")
    assert again(text).input_ids == tokenizer(text).input_ids


def test_words_that_are_found_after_all_do_not_warn(tmp_path, warned):
    """With capitals, if texts keep theirs, and added tokens."""
    RoFormerTokenizer({**WORD_VOCABULARY, "B超": 2873}, user_dict=["B超 9000000"], do_lower_case=False)
    tokenizer = RoFormerTokenizer(VOCABULARY)
    tokenizer.add_tokens(["迈克尔·乔丹"])
    tokenizer.save_pretrained(tmp_path)
    again = RoFormerTokenizer.from_pretrained(tmp_path, user_dict=["今天", "迈克尔·乔丹"])
    assert again.tokenize("今天迈克尔·乔丹") == ["今天", "迈克尔·乔丹"]
    assert warned() == []


def test_jieba_without_words_is_refused(tmp_path):
    with refused(VocabularyError, "word_segmentation='jieba'", "word_segmentation=None", "vocab_chars.txt"):
        RoFormerTokenizer(str(FIXTURES / "vocab_chars.txt"), word_segmentation="jieba")
    shutil.copy(FIXTURES / "vocab_chars.txt", tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text('{"word_segmentation": "jieba"}')
    with refused(VocabularyError, "word_segmentation='jieba'", tmp_path / "vocab.txt"):
        RoFormerTokenizer.from_pretrained(tmp_path)
    with refused(VocabularyError, "word_segmentation='jieba'", "vocab_chars.txt"):
        RoFormerTokenizer(str(FIXTURES / "vocab_chars.txt"), user_dict=["今天"])


@pytest.mark.parametrize("chosen", ["Jieba", "pkuseg", 1, False])
def test_unknown_segmentation(chosen):
    with refused(ValueError, "word_segmentation", repr(chosen), "'jieba'", "'auto'"):
        RoFormerTokenizer(VOCABULARY, word_segmentation=chosen)


def test_a_tokenizer_of_words_is_not_trained_to_one_without(words):
    custom = RoFormerTokenizer(VOCABULARY, word_segmentation=str.split)
    for tokenizer in (words, custom):
        with refused(ValueError, "train_new_from_iterator", "roformer vocab", "word_segmentation=None"):
            tokenizer.train_new_from_iterator(["今天天气非常好"], 60)


def test_a_tokenizer_of_characters_is_trained_as_in_transformers(characters):
    """Also where the vocabulary has words that the tokenizer does not segment."""
    for tokenizer in (characters, RoFormerTokenizer(VOCABULARY, word_segmentation=None)):
        trained = tokenizer.train_new_from_iterator(["今天天气非常好 hello hello"] * 5, 60)
        assert type(trained) is RoFormerTokenizer and trained.word_segmentation is None
        assert trained.tokenize("今天天气hello") == ["今", "天", "天", "气", "hello"]
        assert not has_words(trained.get_vocab()) and "们" not in trained.get_vocab()

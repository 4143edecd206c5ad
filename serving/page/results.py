"""Results of the tasks as values of Gradio's components: a text with labels, a table, and notes.

HighlightedText, Label and Dataframe show every text as it is. Markdown does not, so notes have no text of a visitor.
"""

import pandas as pd

from .fill_mask import Filled, Words
from .served_model import EncodedText
from .similarity import Triplet

MAX_TOKENS = 600  # of a text that are shown
CONTEXT = 160  # characters of a long document that are shown on each side of a mask or an answer
_BAR = "color-mix(in srgb, var(--color-accent) 35%, transparent)"  # of the page's theme

Labelled = list[tuple[str, str | None]]  # parts of a text with their labels, for HighlightedText


def both(chinese: str, english: str) -> str:
    """Return a label in the page's two languages."""
    return f"{chinese} · {english}"


WORD, TEXT, LABEL = both("词", "word"), both("文本", "text"), both("标签", "label")
SCORE, COSINE = both("概率", "score"), both("余弦", "cosine")


def table(rows: list[list], columns: list[str], decimals: int = 3):
    """Return a table for Dataframe, in which each score between 0 and 1 has a bar."""
    frame = pd.DataFrame(rows, columns=columns)
    scores = frame.select_dtypes("float").columns
    return frame.style.format(precision=decimals).bar(scores, vmin=0, vmax=1, color=_BAR)


def notes(*encoded_texts: EncodedText) -> str:
    """Return the length of each text in tokens, and the parts that were not read."""
    sentences = []
    for encoded in encoded_texts:
        if encoded.before or encoded.after:
            chinese = f"共 {encoded.tokens:,} 个词，开头 {encoded.before:,} 个、结尾 {encoded.after:,} 个未读"
            english = (
                f"of {encoded.tokens:,} tokens, the first {encoded.before:,} and the last {encoded.after:,} not read"
            )
            sentences.append(f"{encoded.name}: {both(chinese, english)}")
    if not sentences:
        total = sum(encoded.tokens for encoded in encoded_texts)
        sentences = [both(f"{total:,} 个词，全部读过", f"{total:,} tokens, all read")]
    return "\n\n".join(sentences)


def shortened(parts: Labelled) -> Labelled:
    """Shorten the parts without a label to the characters next to a label."""
    short = []
    for i, (part, label) in enumerate(parts):
        start, end = CONTEXT * (i > 0), CONTEXT * (i < len(parts) - 1)
        is_long = label is None and len(part) > start + end
        short.append((f"{part[:start]} … {part[len(part) - end :]}" if is_long else part, label))
    return short


def _filled_text(filled: Filled) -> Labelled:
    """Return the text with the best word in place of each mask, labelled with the mask's number."""
    first, *others = filled.text.split(filled.mask)
    parts: Labelled = [(first, None)]
    for number, (words, part) in enumerate(zip(filled.words, others, strict=True), 1):
        parts += [(words[0][0], str(number)), (part, None)]
    return shortened(parts)


def filled(result: Filled) -> tuple:
    rows = [[number, *word] for number, words in enumerate(result.words, 1) for word in words]
    return _filled_text(result), table(rows, ["#", WORD, SCORE]), notes(result.encoded)


def filled_document(whole: Filled, alone: list[Words]) -> tuple:
    pairs = enumerate(zip(whole.words, alone, strict=True), 1)
    rows = [[number, *one, *other] for number, words in pairs for one, other in zip(*words, strict=True)]
    columns = [
        "#",
        both("读了全文", "whole document"),
        SCORE,
        both("只读这一句", "sentence alone"),
        both("它的概率", "its score"),
    ]
    length = both(f"{len(whole.text):,} 个字符", f"{len(whole.text):,} characters")
    return table(rows, columns), _filled_text(whole), f"{length}\n\n{notes(whole.encoded)}"


def segmented(segments: list[tuple[str, bool]], encoded: EncodedText) -> tuple:
    tokens = [
        (token, f"{number}" if offsets is None else f"{number} · {offsets[0]}–{offsets[1]}")
        for (token, _), number, offsets in zip(segments, encoded.ids, encoded.offsets, strict=True)
    ]
    unknown = sum(is_unknown for _, is_unknown in segments)
    sentences = [notes(encoded), both("每格：词、编号、在文中的位置", "each box: token, id, characters in the text")]
    if unknown:
        sentences.append(both(f"{unknown:,} 个不在词表中", f"{unknown:,} not in the vocabulary"))
    if len(tokens) > MAX_TOKENS:
        sentences.append(both(f"只显示前 {MAX_TOKENS} 个", f"only the first {MAX_TOKENS} are shown"))
    return tokens[:MAX_TOKENS], "\n\n".join(sentences)


def triplet(result: Triplet) -> tuple:
    names = {name: both(f"{name} 更接近 A", f"{name} is closer to A") for name in "BC"}
    verdict = names.get(result.closer, both("B 与 C 同样接近 A", "B and C are equally close to A"))
    score = SCORE if result.are_probabilities else both("与 A 的余弦", "cosine with A")
    return verdict, table(sorted(result.scores.items()), [TEXT, score]), notes(*result.encoded_texts)


def ranked(texts: list[str], cosines: list[float], encoded_texts: list[EncodedText]) -> tuple:
    rows = [[f"{place}. {text}", cosine] for place, (text, cosine) in enumerate(zip(texts, cosines, strict=True), 1)]
    return table(rows, [TEXT, COSINE]), notes(*encoded_texts)


def compared(texts: list[str], cosines: list[list[float]], encoded_texts: list[EncodedText]) -> tuple:
    """Return the cosines of all texts with each other."""
    numbers = [str(number) for number in range(1, len(texts) + 1)]
    rows = [[f"{number}. {text}", *row] for number, text, row in zip(numbers, texts, cosines, strict=True)]
    return table(rows, [COSINE, *numbers], decimals=2), notes(*encoded_texts)


def classified(scores: list[tuple[str, float]], encoded_texts: list[EncodedText]) -> tuple:
    return dict(scores), notes(*encoded_texts)


def answered(answers: list[dict], context: str) -> tuple:
    start, end = answers[0]["start"], answers[0]["end"]
    parts = shortened([(context[:start], None), (context[start:end], both("答案", "answer")), (context[end:], None)])
    rows = [[one["answer"], one["score"]] for one in answers]
    return parts, table(rows, [both("答案", "answer"), SCORE]), ""


def written(texts: list[str], encoded: EncodedText) -> tuple:
    return table([[text] for text in texts], [TEXT]), notes(encoded)


def labelled(spans: list[dict], encoded: EncodedText) -> tuple:
    """Return the text that was read with its labelled spans, and their scores."""
    rows = [[encoded.part[span["start"] : span["end"]], span["entity"], span["score"]] for span in spans]
    columns = [TEXT, LABEL, SCORE]
    return {"text": encoded.part, "entities": spans}, table(rows, columns), notes(encoded)

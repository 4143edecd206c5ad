"""HTML for the results. Texts of visitors and vocabularies are escaped; colours come from the page's theme."""

from collections.abc import Iterable
from html import escape

from .abilities import Abilities
from .fill_mask import Filled, Words
from .served_model import Reading
from .similarity import Triplet

MAX_TOKENS = 600  # of a text that are drawn
CONTEXT = 160  # characters of a long document that are drawn on each side of a mask or an answer


def both(chinese: str, english: str) -> str:
    """Return a label in the page's two languages."""
    return f"{chinese} · {english}"


def _answer(*parts: str) -> str:
    return f'<div class="answer">{"".join(parts)}</div>'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _text(html: str) -> str:
    return f'<p class="text">{html}</p>'


def _marked(text: str) -> str:
    return f"<mark>{escape(text)}</mark>"


def _sides(parts: list[str]) -> str:
    return f'<div class="sides">{"".join(parts)}</div>'


def _heading(text: str) -> str:
    return f"<h4>{escape(text)}</h4>"


def heading(about: Abilities, longest: int) -> str:
    """Draw the head of the page: the folder's name, and a line about the model."""
    return _answer(f"<h1>{escape(about.name)}</h1>", _note(f"{about.facts} · 最长 longest {longest:,} tokens"))


def bars(scores: Iterable[tuple[str, float]], long: bool = False) -> str:
    """Draw a bar for each score between 0 and 1; `long` puts each text on its own line."""
    return "".join(
        f'<div class="bar{" long" if long else ""}"><span>{escape(text)}</span><span class="track">'
        f'<i style="width:{100 * min(max(score, 0.0), 1.0):.1f}%"></i></span>'
        f'<span class="value">{score:.3f}</span></div>'
        for text, score in scores
    )


def notes(*readings: Reading) -> str:
    """Draw the length of each text in tokens, and the parts that were not read."""
    sentences = []
    for reading in readings:
        if reading.before or reading.after:
            chinese = f"共 {reading.tokens:,} 个词，开头 {reading.before:,} 个、结尾 {reading.after:,} 个未读"
            english = (
                f"of {reading.tokens:,} tokens, the first {reading.before:,} and the last {reading.after:,} not read"
            )
            sentences.append(f"{reading.name}: {both(chinese, english)}")
    if not sentences:
        total = sum(reading.tokens for reading in readings)
        sentences = [both(f"{total:,} 个词，全部读过", f"{total:,} tokens, all read")]
    return "".join(map(_note, sentences))


def _filled_text(filled: Filled) -> str:
    """Draw the text with the best word in place of each mask; shorten a long text to the parts around its masks."""
    parts, pieces = filled.text.split(filled.mask), []
    for i, part in enumerate(parts):
        start, end = CONTEXT * (i > 0), CONTEXT * (i < len(parts) - 1)  # of the part, next to a mask
        if len(part) > start + end:
            part = f"{part[:start]} … {part[len(part) - end :]}"
        pieces += [_marked(filled.words[i - 1][0][0]) if i else "", escape(part)]
    return _text("".join(pieces))


def filled(result: Filled) -> str:
    lists = []
    for number, words in enumerate(result.words, 1):
        title = _heading(both(f"第 {number} 个", f"mask {number}")) if len(result.words) > 1 else ""
        lists.append(f"<div>{title}{bars(words)}</div>")
    return _answer(_filled_text(result), _sides(lists), notes(result.reading))


def filled_document(whole: Filled, alone: list[Words]) -> str:
    lists = []
    for number, words in enumerate(zip(whole.words, alone, strict=True), 1):
        mask = f" {number}" if len(alone) > 1 else ""
        titles = both("读了全文", "whole document"), both("只读这一句", "sentence alone")
        lists += [f"<div>{_heading(title + mask)}{bars(best)}</div>" for title, best in zip(titles, words, strict=True)]
    length = _note(both(f"{len(whole.text):,} 个字符", f"{len(whole.text):,} characters"))
    return _answer(length, notes(whole.reading), _sides(lists), _filled_text(whole))


def segmented(segments: list[tuple[str, bool]], reading: Reading) -> str:
    tokens = []
    shown = list(zip(segments, reading.ids, reading.offsets, strict=True))[:MAX_TOKENS]
    for (token, is_unknown), number, offsets in shown:
        style = " special" if offsets is None else " unknown" if is_unknown else ""
        place = "–" if offsets is None else f"{offsets[0]}–{offsets[1]}"
        box = f"<b>{escape(token)}</b><span>{number}</span><span>{place}</span>"
        tokens.append(f'<div class="token{style}">{box}</div>')
    unknown = sum(is_unknown for _, is_unknown in segments)
    sentences = [both("每格：词、编号、在文中的位置", "each box: token, id, characters in the text")]
    if unknown:
        sentences.append(both(f"{unknown:,} 个不在词表中", f"{unknown:,} not in the vocabulary"))
    if len(segments) > MAX_TOKENS:
        sentences.append(both(f"只画出前 {MAX_TOKENS} 个", f"only the first {MAX_TOKENS} are shown"))
    return _answer(f'<div class="tokens">{"".join(tokens)}</div>', notes(reading), *map(_note, sentences))


def triplet(result: Triplet) -> str:
    names = {name: both(f"{name} 更接近 A", f"{name} is closer to A") for name in "BC"}
    verdict = names.get(result.closer, both("B 与 C 同样接近 A", "B and C are equally close to A"))
    unit = both("概率", "probability") if result.are_probabilities else both("余弦", "cosine with A")
    scores = sorted(result.scores.items())
    return _answer(_text(_marked(verdict)), _note(unit), bars(scores), notes(*result.readings))


def ranked(texts: list[str], cosines: list[float], readings: list[Reading]) -> str:
    numbered = [f"{place}. {text}" for place, text in enumerate(texts, 1)]
    scores = bars(zip(numbered, cosines, strict=True), long=True)
    return _answer(_note(both("余弦，最接近的在前", "cosines, closest first")), scores, notes(*readings))


def matrix(texts: list[str], cosines: list[list[float]], readings: list[Reading]) -> str:
    """Draw the cosines of all texts with each other; closer pairs are darker."""
    others = [value for i, row in enumerate(cosines) for j, value in enumerate(row) if i != j]
    low, high = min(others), max(others)
    head = "".join(f'<th class="top">{number}</th>' for number in range(1, len(texts) + 1))
    rows = []
    for number, (text, row) in enumerate(zip(texts, cosines, strict=True), 1):
        cells = []
        for j, value in enumerate(row, 1):
            share = (value - low) / (high - low) if high > low else 0.5
            shade = f"color-mix(in srgb, var(--color-accent) {10 + 55 * share:.0f}%, transparent)"
            cells.append(f'<td style="background:{"transparent" if j == number else shade}">{value:.2f}</td>')
        rows.append(f"<tr><th>{number}. {escape(text)}</th>{''.join(cells)}</tr>")
    return _answer(f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>", notes(*readings))


def classified(scores: list[tuple[str, float]], readings: list[Reading]) -> str:
    return _answer(_text(_marked(scores[0][0])), bars(scores), notes(*readings))


def answered(answers: list[dict], context: str) -> str:
    best = answers[0]
    start = max(best["start"] - CONTEXT, 0)
    before, after = context[start : best["start"]], context[best["end"] : best["end"] + CONTEXT]
    left = "… " if start > 0 else ""
    right = " …" if best["end"] + CONTEXT < len(context) else ""
    text = _text(f"{left}{escape(before)}{_marked(best['answer'])}{escape(after)}{right}")
    return _answer(text, bars((answer["answer"], answer["score"]) for answer in answers))


def written(texts: list[str], reading: Reading) -> str:
    return _answer(*(_text(escape(text)) for text in texts), notes(reading))


def labelled(spans: list[dict], reading: Reading) -> str:
    """Draw the text that was read, with its labelled spans marked."""
    pieces, at = [], 0
    for span in spans:
        pieces.append(escape(reading.part[at : span["start"]]))
        label = f"{escape(span['entity'])} {span['score']:.2f}"
        pieces.append(f"<mark>{escape(reading.part[span['start'] : span['end']])} <small>{label}</small></mark>")
        at = span["end"]
    pieces.append(escape(reading.part[at:]))
    none = "" if spans else _note(both("没有找到", "nothing was found"))
    return _answer(_text("".join(pieces)), none, notes(reading))

"""Layout of the page in Gradio: one tab per task of the model."""

import logging
from collections.abc import Callable
from html import escape

import gradio as gr

from ...output.console import sentence_of
from ..errors import ServingError
from . import abilities, drawing
from .examples import CHINESE, ENGLISH
from .fill_mask import fill, fill_document
from .question_answering import answer_question
from .served_model import ServedModel
from .similarity import compare, rank, triplet
from .tasks import classify, entities, segments, write

_log = logging.getLogger(__name__)
_LINE, _TEXT, _LINES, _DOCUMENT = 2, 5, 8, 16  # visible lines of a field


def _ask(task: Callable, draw: Callable) -> Callable:
    """Return a function that runs a task and draws its result, a tuple or one value, as HTML."""
    return lambda served, *texts: draw(*(found if isinstance(found := task(served, *texts), tuple) else (found,)))


# Tab -> title, button, fields with their visible lines, and the function that makes HTML of the texts.
_TABS = {
    abilities.FILL: (
        "填词 Fill masks", "填词 Fill",
        {"文本，在 [MASK] 处填词 · A text, with [MASK] in place of each missing word": _TEXT},
        _ask(fill, drawing.filled),
    ),
    abilities.DOCUMENT: (
        "长文档 Document", "读全文并填词 Read and fill",
        {"长文档，在 [MASK] 处填词 · A long document, with [MASK] in place of each missing word": _DOCUMENT},
        _ask(fill_document, drawing.filled_document),
    ),
    abilities.SEGMENTS: ("分词 Tokens", "分词 Segment", {"文本 A text": _TEXT}, _ask(segments, drawing.segmented)),
    abilities.TRIPLET: (
        "三元组 Triplets", "比较 Compare", {"A": _LINE, "B": _LINE, "C": _LINE}, _ask(triplet, drawing.triplet),
    ),
    abilities.RANK: (
        "排序 Rank cases", "排序 Rank", {"查询 Query": _LINE, "案例，每行一个 · Cases, one per line": _LINES},
        _ask(rank, drawing.ranked),
    ),
    abilities.COMPARE: (
        "相似度 Sentences", "比较 Compare", {"句子，每行一句 · Sentences, one per line": _LINES},
        _ask(compare, drawing.matrix),
    ),
    abilities.CLASSIFY: (
        "分类 Classify", "分类 Classify", {"文本 A text": _LINES, "第二个文本（可空） A second text, for pairs": _LINE},
        _ask(classify, drawing.classified),
    ),
    abilities.ENTITIES: ("标注 Label words", "标注 Label", {"文本 A text": _TEXT}, _ask(entities, drawing.labelled)),
    abilities.ANSWER: (
        "问答 Answer", "回答 Answer", {"问题 Question": _LINE, "文档 Document": _DOCUMENT},
        _ask(answer_question, drawing.answered),
    ),
    abilities.WRITE: ("生成 Write", "生成 Write", {"文本 A text": _TEXT}, _ask(write, drawing.written)),
}  # fmt: skip


def build(served: ServedModel) -> gr.Blocks:
    """Return the page of a model. It computes one request at a time, on all cores."""
    with gr.Blocks(title=served.abilities.name, analytics_enabled=False) as page:
        gr.HTML(drawing.heading(served.abilities, served.longest))
        for tab in served.abilities.tabs:
            _add(served, tab)
    return page


def _add(served: ServedModel, tab: str) -> None:
    title, button, fields, ask = _TABS[tab]
    examples = (CHINESE if served.is_chinese else ENGLISH)[tab]
    with gr.Tab(title, id=tab, elem_id=tab):
        with gr.Row():
            with gr.Column():
                # The browser truncates pasted text to one character more than the server accepts.
                boxes = [
                    gr.Textbox(label=label, lines=lines, max_lines=2 * lines, max_length=served.longest_text + 1)
                    for label, lines in fields.items()
                ]
                asked = gr.Button(button, variant="primary")
            with gr.Column():
                drawn = gr.HTML(elem_id=f"{tab}-answer", min_height=120)
        clicked = gr.Examples(examples, boxes, label="例子 Examples", cache_examples=False)
        event = {"fn": _answering(served, ask), "inputs": boxes, "outputs": drawn, "concurrency_id": "model"}
        asked.click(**event, api_name=tab)
        clicked.load_input_event.then(**event, api_visibility="private")


def _answering(served: ServedModel, ask: Callable) -> Callable:
    """Return a function that shows a visitor the package's own errors and hides all others."""

    def answered(*texts: str) -> str:
        try:
            return ask(served, *texts)
        except ServingError as error:
            sentence = sentence_of(error)
        except Exception:
            _log.exception("a request failed")
            sentence = "the server failed; see its log"
        raise gr.Error(escape(sentence), print_exception=False)

    return answered

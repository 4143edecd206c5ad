"""The layout: a tab for each thing that the model can do, in Gradio."""

import logging
from collections.abc import Callable
from html import escape

import gradio as gr

from ...output.console import sentence_of
from ..errors import ServingError
from . import abilities, drawing
from .examples import CHINESE, ENGLISH
from .fill_mask import fill, fill_document
from .labels import answer, classify, entities
from .segments import segments
from .served_model import ServedModel
from .similarity import compare, rank, triplet
from .write import write

_log = logging.getLogger(__name__)
_LINE, _TEXT, _DOCUMENT = 2, 5, 16  # lines that a field shows


def _ask(question: Callable, draw: Callable) -> Callable:
    """A question to the model, of whose answer one HTML text is made."""
    return lambda served, *texts: draw(*(found if isinstance(found := question(served, *texts), tuple) else (found,)))


# Tab -> its title, its button, its fields with the lines that they show, and what makes HTML of them.
_TABS = {
    abilities.FILL: (
        "填词 Fill masks",
        "填词 Fill",
        {"文本，在 [MASK] 处填词 · A text, with [MASK] where a word is wanted": _TEXT},
        _ask(fill, drawing.filled),
    ),
    abilities.DOCUMENT: (
        "长文档 Document",
        "读全文并填词 Read and fill",
        {"长文档，在 [MASK] 处填词 · A long document, with [MASK] where a word is wanted": _DOCUMENT},
        _ask(fill_document, drawing.filled_document),
    ),
    abilities.SEGMENTS: (
        "分词 Tokens",
        "分词 Segment",
        {"文本 A text": _TEXT},
        _ask(segments, drawing.segmented),
    ),
    abilities.TRIPLET: (
        "三元组 Triplets",
        "比较 Compare",
        {"A": _LINE, "B": _LINE, "C": _LINE},
        _ask(triplet, drawing.triplet),
    ),
    abilities.RANK: (
        "排序 Rank cases",
        "排序 Rank",
        {"查询 Query": _LINE, "案例，每行一个 · Cases, one a line": 8},
        _ask(rank, drawing.ranked),
    ),
    abilities.COMPARE: (
        "相似度 Sentences",
        "比较 Compare",
        {"句子，每行一句 · Sentences, one a line": 8},
        _ask(compare, drawing.matrix),
    ),
    abilities.CLASSIFY: (
        "分类 Classify",
        "分类 Classify",
        {"文本 A text": 8, "第二个文本（可空） A second text, for pairs": _LINE},
        _ask(classify, drawing.classified),
    ),
    abilities.ENTITIES: (
        "标注 Label words",
        "标注 Label",
        {"文本 A text": _TEXT},
        _ask(entities, drawing.labelled),
    ),
    abilities.ANSWER: (
        "问答 Answer",
        "回答 Answer",
        {"问题 Question": _LINE, "文档 Document": _DOCUMENT},
        lambda served, question, context: drawing.answered(answer(served, question, context), context),
    ),
    abilities.WRITE: (
        "生成 Write",
        "生成 Write",
        {"文本 A text": _TEXT},
        _ask(write, drawing.written),
    ),
}


def build(served: ServedModel) -> gr.Blocks:
    """The page of a model; one question is computed at a time, on all cores."""
    about = served.abilities
    with gr.Blocks(title=about.name, analytics_enabled=False) as page:
        gr.HTML(drawing.heading(about, served.longest))
        for tab in about.tabs:
            _add(served, tab)
    return page


def _add(served: ServedModel, tab: str) -> None:
    title, button, fields, ask = _TABS[tab]
    examples = (CHINESE if served.is_chinese else ENGLISH)[tab]
    with gr.Tab(title, id=tab, elem_id=tab):
        with gr.Row():
            with gr.Column():
                # What is pasted is cut by the browser where the server will say that it is too long.
                boxes = [
                    gr.Textbox(label=label, lines=lines, max_lines=2 * lines, max_length=served.longest_text + 1)
                    for label, lines in fields.items()
                ]
                asked = gr.Button(button, variant="primary")
            with gr.Column():
                drawn = gr.HTML(elem_id=f"{tab}-answer", min_height=120)
        clicked = gr.Examples(
            examples, boxes, label="例子 Examples", examples_per_page=len(examples), cache_examples=False
        )
        event = {"fn": _answering(served, ask), "inputs": boxes, "outputs": drawn, "concurrency_id": "model"}
        asked.click(**event, api_name=tab)
        clicked.load_input_event.then(**event, api_visibility="private")


def _answering(served: ServedModel, ask: Callable) -> Callable:
    """What a visitor is told instead of an answer: a sentence of the package's own, never what else went wrong."""

    def answered(*texts: str) -> str:
        try:
            return ask(served, *texts)
        except ServingError as error:
            sentence = sentence_of(error)
        except Exception:
            _log.exception("a question was not answered")
            sentence = "the server could not answer this, and its log says why"
        raise gr.Error(escape(sentence), print_exception=False)

    return answered

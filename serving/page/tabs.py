"""Layout of the page in Gradio: one tab per task of the model."""

import logging
from collections.abc import Callable
from functools import partial
from html import escape
from typing import NamedTuple

import gradio as gr

from modeling_roformer.output.console import sentence_of

from ..errors import ServingError
from . import results
from .examples import CHINESE, ENGLISH
from .fill_mask import fill, fill_document
from .question_answering import answer_question
from .served_model import ServedModel
from .similarity import compare, rank, triplet
from .tasks import classify, entities, segments, write

_log = logging.getLogger(__name__)
_LINE, _TEXT, _LINES, _DOCUMENT = 2, 5, 8, 16  # visible lines of a field
_LABELLED = partial(gr.HighlightedText, show_label=False, interactive=False)
_TABLE = partial(gr.Dataframe, show_label=False, headers=[""], interactive=False, wrap=True, buttons=[])
_TEXTS = partial(_TABLE, column_widths=["60%"])  # of the first column: a long text would hide the others
_LABEL = partial(gr.Label, show_label=False)


class _Tab(NamedTuple):
    title: str
    button: str
    fields: dict[str, int]  # label -> visible lines
    task: Callable  # its arguments are the model and the texts of the fields
    show: Callable  # returns the values of the components, and the notes
    components: tuple[Callable, ...]


_TABS = {
    "fill": _Tab(
        "填词 Fill masks",
        "填词 Fill",
        {"文本，在 [MASK] 处填词 · A text, with [MASK] in place of each missing word": _TEXT},
        fill,
        results.filled,
        (_LABELLED, _TABLE),
    ),
    "document": _Tab(
        "长文档 Document",
        "读全文并填词 Read and fill",
        {"长文档，在 [MASK] 处填词 · A long document, with [MASK] in place of each missing word": _DOCUMENT},
        fill_document,
        results.filled_document,
        (_TABLE, _LABELLED),
    ),
    "segments": _Tab("分词 Tokens", "分词 Segment", {"文本 A text": _TEXT}, segments, results.segmented, (_LABELLED,)),
    "triplet": _Tab(
        "三元组 Triplets",
        "比较 Compare",
        {"A": _LINE, "B": _LINE, "C": _LINE},
        triplet,
        results.triplet,
        (_LABEL, _TABLE),
    ),
    "rank": _Tab(
        "排序 Rank cases",
        "排序 Rank",
        {"查询 Query": _LINE, "案例，每行一个 · Cases, one per line": _LINES},
        rank,
        results.ranked,
        (_TEXTS,),
    ),
    "compare": _Tab(
        "相似度 Sentences",
        "比较 Compare",
        {"句子，每行一句 · Sentences, one per line": _LINES},
        compare,
        results.compared,
        (_TEXTS,),
    ),
    "classify": _Tab(
        "分类 Classify",
        "分类 Classify",
        {"文本 A text": _LINES, "第二个文本（可空） A second text, for pairs": _LINE},
        classify,
        results.classified,
        (_LABEL,),
    ),
    "entities": _Tab(
        "标注 Label words",
        "标注 Label",
        {"文本 A text": _TEXT},
        entities,
        results.labelled,
        (_LABELLED, _TEXTS),
    ),
    "answer": _Tab(
        "问答 Answer",
        "回答 Answer",
        {"问题 Question": _LINE, "文档 Document": _DOCUMENT},
        answer_question,
        results.answered,
        (_LABELLED, _TEXTS),
    ),
    "write": _Tab("生成 Write", "生成 Write", {"文本 A text": _TEXT}, write, results.written, (_TABLE,)),
}


def build(served: ServedModel) -> gr.Blocks:
    """Return the page of a model. It computes one request at a time, on all cores."""
    about = served.info
    with gr.Blocks(title=about.name, analytics_enabled=False) as page:
        gr.HTML(f"<h1>{escape(about.name)}</h1><p>{escape(about.facts)} · 最长 longest {served.longest:,} tokens</p>")
        for name in about.tabs:
            _add(served, name, _TABS[name])
    return page


def _add(served: ServedModel, name: str, tab: _Tab) -> None:
    examples = (CHINESE if served.is_chinese else ENGLISH)[name]
    with gr.Tab(tab.title, id=name, elem_id=name):
        with gr.Row():
            with gr.Column():
                # The browser truncates pasted text to one character more than the server accepts.
                boxes = [
                    gr.Textbox(label=label, lines=lines, max_lines=2 * lines, max_length=served.longest_text + 1)
                    for label, lines in tab.fields.items()
                ]
                button = gr.Button(tab.button, variant="primary")
            with gr.Column(elem_classes="result"):
                shown = [make() for make in (*tab.components, gr.Markdown)]
        shown_examples = gr.Examples(examples, boxes, label="例子 Examples", cache_examples=False)
        event = {"fn": _function_of(served, tab), "inputs": boxes, "outputs": shown, "concurrency_id": "model"}
        button.click(**event, api_name=name)
        shown_examples.load_input_event.then(**event, api_visibility="private")


def _function_of(served: ServedModel, tab: _Tab) -> Callable:
    """Return the function from the texts of a tab to its results. It shows the package's own errors and hides all
    others."""

    def answered(*texts: str) -> tuple:  # Gradio names an endpoint after it: no tab may have the same name
        try:
            result = tab.task(served, *texts)
            return tab.show(*result) if isinstance(result, tuple) else tab.show(result)
        except ServingError as error:
            sentence = sentence_of(error)
        except Exception:
            _log.exception("a request failed")
            sentence = "the server failed; see its log"
        raise gr.Error(escape(sentence), print_exception=False)

    return answered

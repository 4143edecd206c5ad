"""`pipeline("translation")`, `"summarization"` and `"text2text-generation"` for every model of `AutoModelForSeq2SeqLM`.

transformers 5 has removed them; they work as in its version 4.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import GenerationConfig, Pipeline, PreTrainedTokenizerBase
from transformers.dynamic_module_utils import custom_object_save
from transformers.tokenization_utils_base import TruncationStrategy

TRANSLATION = re.compile(r"translation_(?P<src_lang>[^_]+)_to_(?P<tgt_lang>[^_]+)")


class Text2TextGenerationPipeline(Pipeline):
    """Pipeline that generates a text from each text, by default with beam search.

    Args (of a call):
        inputs: a text; or a list, generator or dataset of texts.
        return_tensors: return token ids in place of texts.
        truncation: argument of the tokenizer; by default, texts are not truncated.
        stop_sequence: text after which generation ends.
        **generate_kwargs: for the model's `generate`: `num_beams` (default 4), `max_new_tokens` (default 256), …

    Returns:
        For a text, a list of `num_return_sequences` dicts `{"generated_text": str}`; for a list of texts, a list of
        dicts, or of lists of dicts if there are several per text.

    ```python
    >>> rewrite = pipeline("text2text-generation", model=DIR)
    >>> rewrite("A dog runs.")
    [{'generated_text': 'Ein Hund rennt.'}]
    ```
    """

    if TYPE_CHECKING:
        model: Any
        tokenizer: PreTrainedTokenizerBase

    return_name = "generated"

    _pipeline_calls_generate = True
    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False
    _default_generation_config = GenerationConfig(max_new_tokens=256, num_beams=4)

    def __init__(self, model, *args, **kwargs):
        if not (model.can_generate() and model.config.is_encoder_decoder):
            raise ValueError(
                f"{type(model).__name__} is no encoder-decoder that generates: load the model with "
                "AutoModelForSeq2SeqLM"
            )
        super().__init__(model, *args, **kwargs)

    def __call__(self, inputs, **kwargs):
        results: Any = super().__call__(inputs, **kwargs)
        if isinstance(inputs, list) and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def _sanitize_parameters(
        self,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        truncation: bool | str | TruncationStrategy | None = None,
        stop_sequence: str | list[str] | None = None,
        **generate_kwargs,
    ):
        preprocessing = {} if truncation is None else {"truncation": truncation}
        postprocessing = {}
        if return_tensors is not None or return_text is not None:
            postprocessing["return_tensors"] = bool(return_tensors) if return_text is None else not return_text
        if clean_up_tokenization_spaces is not None:
            postprocessing["clean_up_tokenization_spaces"] = clean_up_tokenization_spaces
        if stop_sequence is not None:
            generate_kwargs |= {"stop_strings": stop_sequence, "tokenizer": self.tokenizer}
        if self.assistant_model is not None:
            generate_kwargs["assistant_model"] = self.assistant_model
        if self.assistant_tokenizer is not None:
            generate_kwargs |= {"tokenizer": self.tokenizer, "assistant_tokenizer": self.assistant_tokenizer}
        return preprocessing, generate_kwargs, postprocessing

    def preprocess(self, text: str, truncation: bool | str | TruncationStrategy = False):
        inputs = self.tokenizer(self.with_prefix(text), truncation=truncation, return_tensors="pt")
        inputs.pop("token_type_ids", None)  # most models' `generate` has no such argument
        return inputs

    def with_prefix(self, text: str) -> str:
        """Return the text after `config.prefix`, which tells a model of several tasks its task."""
        if not isinstance(text, str):
            raise ValueError(f"an input is of type {type(text).__name__}; expected str")
        return (self.prefix or "") + text

    def save_pretrained(self, save_directory: str | Path, **kwargs) -> None:
        """Save model, tokenizer and this file, which the config of a model published with its code names.

        Args:
            save_directory: folder, made if it does not exist.
            kwargs: for `save_pretrained` of model and tokenizer.
        """
        super().save_pretrained(save_directory, **kwargs)
        custom_object_save(self, save_directory)

    def _forward(self, inputs, **generate_kwargs):
        texts = inputs["input_ids"].shape[0]
        output_ids = self.model.generate(**inputs, **self._prepare_generate_kwargs(generate_kwargs))
        return {"output_ids": output_ids.unflatten(0, (texts, -1))}

    def postprocess(self, outputs, return_tensors: bool = False, **decoding):
        output_ids = outputs["output_ids"][0]
        if return_tensors:
            return [{f"{self.return_name}_token_ids": ids} for ids in output_ids]
        return [
            {f"{self.return_name}_text": self.tokenizer.decode(ids, skip_special_tokens=True, **decoding)}
            for ids in output_ids
        ]


class SummarizationPipeline(Text2TextGenerationPipeline):
    """Pipeline that summarises each text: a `Text2TextGenerationPipeline` whose output's key is `"summary_text"`."""

    return_name = "summary"


class TranslationPipeline(Text2TextGenerationPipeline):
    """Pipeline that translates each text: a `Text2TextGenerationPipeline` whose output's key is `"translation_text"`.

    Args (of a call):
        src_lang, tgt_lang: source and target language, for models of several languages whose tokenizer supports them;
            the task "translation_en_to_de" sets both.
    """

    return_name = "translation"

    def _sanitize_parameters(self, src_lang: str | None = None, tgt_lang: str | None = None, **kwargs):
        preprocessing, *rest = super()._sanitize_parameters(**kwargs)
        languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
        if src_lang is None and tgt_lang is None and (task := TRANSLATION.fullmatch(self.task or "")):
            languages = task.groupdict()
        preprocessing |= {name: language for name, language in languages.items() if language is not None}
        return preprocessing, *rest

    def preprocess(self, text: str, truncation=False, src_lang: str | None = None, tgt_lang: str | None = None):
        build = getattr(self.tokenizer, "_build_translation_inputs", None)
        if build is None:
            return super().preprocess(text, truncation)
        text = self.with_prefix(text)
        return build(text, return_tensors="pt", truncation=truncation, src_lang=src_lang, tgt_lang=tgt_lang)


PIPELINES = {
    "text2text-generation": Text2TextGenerationPipeline,
    "summarization": SummarizationPipeline,
    "translation": TranslationPipeline,
}

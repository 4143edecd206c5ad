"""The causal language model: RoFormer-GPT, and with `prefix_lm` RoFormer-Sim.

Dimensions in the shapes: b batch, s sequence length.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions

from .docstrings import can_return_tuple
from .heads import LanguageModel
from .inputs import CACHE_NAME, given_cache
from .rotary import depends_on_length
from .task_head import check_token_labels, describes_inputs_and_parts, mean_cross_entropy


@dataclass
class RoFormerCausalLMOutput(CausalLMOutputWithCrossAttentions):
    """Output of transformers' causal language models; a pooler adds `pooler_output`, shape (b, hidden_size)."""

    pooler_output: torch.FloatTensor | None = None


class RoFormerForCausalLM(LanguageModel, GenerationMixin):
    """Causal language model: predicts the next word. RoFormer-GPT, and with `prefix_lm` RoFormer-Sim.

    In a prefix language model the tokens of the prompt, segment 0, see each other; the generated text is segment 1.

    ```python
    >>> from transformers import pipeline
    >>> pipeline("text-generation", model=DIR)("北京", max_new_tokens=20)[0]["generated_text"]
    ```
    """

    @can_return_tuple
    @describes_inputs_and_parts
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        position_ids: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs,
    ) -> RoFormerCausalLMOutput:
        """Score every word of the vocabulary as the next one.

        Args:
            labels: the input ids, shape (b, s), and -100 for words to ignore; `forward` shifts them.
            logits_to_keep: compute only the last N logits (0: all), or those at the given positions.

        Returns:
            `logits` of shape (b, s, vocab_size), and `loss`, the mean cross-entropy over the next words.
        """
        next_words: Any = kwargs.get("shift_labels")
        if labels is not None and next_words is None:
            next_words = F.pad(labels, (0, 1), value=-100)[:, 1:]
        vocab_size = self.config.vocab_size
        _, on_padding = check_token_labels(
            labels, input_ids, inputs_embeds, attention_mask, vocab_size, next_labels=next_words
        )
        if labels is not None and use_cache is None and self.training:
            use_cache = False  # a cache would hold padding, too, so that it could not be left out
        inputs = (input_ids, attention_mask, token_type_ids, inputs_embeds)
        inputs += (encoder_hidden_states, encoder_attention_mask, past_key_values, use_cache, position_ids)
        outputs = self.base_outputs(*inputs, reads_padding=on_padding, **kwargs)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.cls(outputs.last_hidden_state[:, keep])
        loss = None
        if labels is not None:
            loss = self._next_word_loss(logits, labels, next_words, **kwargs)
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return RoFormerCausalLMOutput(loss=loss, logits=logits, **others)

    def _next_word_loss(
        self, logits: torch.Tensor, labels: torch.Tensor, next_words: torch.Tensor, **kwargs
    ) -> torch.Tensor:
        """Return the loss of `loss_function`; if that is transformers' default, computed by `mean_cross_entropy`."""
        if self.loss_function is ForCausalLMLoss and "ignore_index" not in kwargs:
            return mean_cross_entropy(logits.float(), next_words, kwargs.get("num_items_in_batch"))
        return self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)

    def generate(self, inputs=None, generation_config=None, *args, **kwargs):
        """Generate as in transformers; without a cache if frequencies depend on the length (dynamic NTK).

        Raises:
            ValueError: the checkpoint is an encoder, which was not trained to continue a text; or a prefix language
                model was asked to read its prompt in parts or to guide its words (`guidance_scale`).
        """
        if not self.config.is_decoder:
            raise ValueError(
                "this checkpoint is an encoder (is_decoder=False) and cannot generate text: load a RoFormer-GPT or "
                "RoFormer-Sim; to train this one on generation, pass is_decoder=True to from_pretrained"
            )
        cache = given_cache(kwargs.pop("past_key_values", None), kwargs)
        if cache is not None:
            kwargs[CACHE_NAME] = cache
        if depends_on_length(self.config):
            kwargs.setdefault("use_cache", False)
        if self.config.prefix_lm:
            settings = generation_config or self.generation_config
            if getattr(settings, "is_assistant", False) and "token_type_ids" in kwargs:
                # These are the main model's segments and one more (see `_get_candidate_generator`).
                kwargs["token_type_ids"] = kwargs["token_type_ids"][:, : kwargs["input_ids"].shape[1]]
            self._check_prefix(settings, cache, kwargs)
        return super().generate(inputs, generation_config, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _check_prefix(self, settings: Any, cache: Cache | None, kwargs: dict[str, Any]) -> None:
        """Raise a ValueError for arguments of `generate` with which a prefix language model would not see its prompt."""
        if kwargs.get("prefill_chunk_size", getattr(settings, "prefill_chunk_size", None)) is not None:
            raise ValueError(
                "prefill_chunk_size does not work with prefix_lm=True, where all tokens of the prompt see each "
                "other: leave it out"
            )
        if kwargs.get("guidance_scale", getattr(settings, "guidance_scale", None)) not in (None, 1):
            raise ValueError(
                "guidance_scale does not work with prefix_lm=True: transformers computes the words without the "
                "prompt as if they were a prompt: leave it out"
            )
        # An assistant's cache had the whole prompt, even if its last words were removed.
        is_assistant = getattr(settings, "is_assistant", False)
        past = 0 if cache is None or is_assistant else cache.get_seq_length()
        segments = kwargs.get("token_type_ids")
        if past and (segments is None or (segments[:, past:] == 0).any()):
            raise ValueError(
                "past_key_values of a part of the prompt do not work with prefix_lm=True, where all tokens of the "
                "prompt see each other: leave them out, or pass token_type_ids that are 1 after the cached tokens"
            )

    def prepare_inputs_for_generation(
        self, input_ids, *args, cache=None, inputs_embeds=None, is_first_iteration=False, prompt_length=None, **kwargs
    ):
        if cache is not None:
            kwargs[CACHE_NAME] = cache
        if inputs_embeds is not None and depends_on_length(self.config) and not is_first_iteration:
            # Without a cache, each step reads the whole text: the embedded prompt and the words generated so far.
            new = self.get_input_embeddings()(input_ids[:, prompt_length:])
            inputs_embeds, is_first_iteration = torch.cat([inputs_embeds, new.to(inputs_embeds)], dim=1), True
        # `generate` continues one text per row, and leaves out a mask of ones, which would say so.
        kwargs["one_text_per_row"] = None
        return super().prepare_inputs_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            input_ids, *args, inputs_embeds=inputs_embeds, is_first_iteration=is_first_iteration, **kwargs
        )

    @property
    def _is_stateful(self) -> bool:
        """True if the cache cannot be cropped: `generate` then refuses assisted decoding."""
        return self.config.attention_type == "linear"

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        if depends_on_length(self.config) and "inputs_embeds" in model_kwargs:
            generation_config.use_cache = False  # transformers set it, to detect the first step
            return
        if self.config.attention_type == "linear" and model_kwargs.get(CACHE_NAME) is None:
            kind = generation_config.cache_implementation
            if kind not in (None, "dynamic"):
                raise ValueError(
                    f'cache_implementation="{kind}" does not work with attention_type="linear", whose state has a '
                    "constant size: leave it out"
                )
            if generation_config.use_cache is not False:
                model_kwargs[CACHE_NAME] = self.self_attention.make_cache(self.config)
            return
        super()._prepare_cache_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            generation_config, model_kwargs, *args, **kwargs
        )

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
        # transformers repeats the last segment; generated tokens of a prefix language model are segment 1.
        token_type_ids = model_kwargs.pop("token_type_ids", None) if self.config.prefix_lm else None
        model_kwargs = super()._update_model_kwargs_for_generation(
            outputs, model_kwargs, is_encoder_decoder, num_new_tokens
        )
        if token_type_ids is not None:
            model_kwargs["token_type_ids"] = F.pad(token_type_ids, (0, num_new_tokens), value=1)
        return model_kwargs

    def _get_candidate_generator(self, *args, model_kwargs, **kwargs):
        # Assisted decoding truncates the segments to prompt and candidates, or repeats the last one: append a 1, so
        # that it repeats the segment of the generated text.
        if self.config.prefix_lm:
            model_kwargs["token_type_ids"] = F.pad(model_kwargs["token_type_ids"], (0, 1), value=1)
        return super()._get_candidate_generator(  # pyright: ignore[reportAttributeAccessIssue]
            *args, model_kwargs=model_kwargs, **kwargs
        )

    def _prepare_model_inputs(self, inputs=None, bos_token_id=None, model_kwargs=None):
        inputs, name, model_kwargs = super()._prepare_model_inputs(  # pyright: ignore[reportAttributeAccessIssue]
            inputs, bos_token_id, model_kwargs
        )
        if self.config.prefix_lm:
            token_type_ids = model_kwargs.get("token_type_ids")
            if token_type_ids is None:
                token_type_ids = torch.zeros(inputs.shape[:2], dtype=torch.long, device=inputs.device)
            new = max(inputs.shape[1] - token_type_ids.shape[1], 0)  # first words of the generated text, if given
            model_kwargs["token_type_ids"] = F.pad(token_type_ids, (0, new), value=1)
        if name == "inputs_embeds" and depends_on_length(self.config):
            model_kwargs["prompt_length"] = model_kwargs["input_ids"].shape[1]
        return inputs, name, model_kwargs

    def create_masks_for_generate(
        self, config, inputs_embeds, attention_mask, past_key_values=None, token_type_ids=None, **kwargs
    ):
        """Return the mask of a step with a static cache; `generate` makes it ahead of the compiled call."""
        past_key_values = given_cache(past_key_values, kwargs)
        return self.self_attention.make_mask(
            config, config._attn_implementation, inputs_embeds, attention_mask, token_type_ids, past_key_values
        )

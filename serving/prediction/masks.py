"""Words for the masks of texts."""

from collections.abc import Sequence

import torch

from .heads import Head, Item, Result, finite, rounded

_MASKS_AT_ONCE = 64  # each needs memory for logits over the whole vocabulary


class MaskHead(Head):
    """Masked language modelling. Each mask of a text has a result, in the order of the text."""

    texts = {"field": "text"}
    columns = ("mask", "predicted", "score")
    takes = frozenset({"top_k"})
    labels = ""

    def __init__(self, loaded, options):
        if options.top_k is not None:
            self.columns = (*self.columns, "scores")
        super().__init__(loaded, options)

    def kind(self) -> str:
        """Return the name of the head in messages."""
        return "a masked language model"

    def items(self, texts: Sequence[str]) -> list[Item]:
        """Return the text. Raise ValueError if it has no mask, or if one lies behind the longest input."""
        item, mask = self.encoded(texts[0]), self.tokenizer.mask_token
        if mask not in texts[0]:
            raise ValueError(f"the text has no {mask}: write {mask} in place of the missing word")
        places = [place for place, id_ in enumerate(item.inputs["input_ids"][0]) if id_ == self.tokenizer.mask_token_id]
        if len(places) < texts[0].count(mask):
            raise ValueError(f"a {mask} lies behind the first {self.longest:,} tokens: shorten the text before it")
        return [Item(item.inputs, places, item.truncated)]

    def outputs(self, items: Sequence[Item]) -> list[list[list[tuple[int, float]]]]:
        """Return the ids of the best words of each mask of each item, with their probabilities."""
        hidden_states = self.model.base_model(**self.batch(items)).last_hidden_state
        at_masks = torch.cat([hidden_states[row, item.facts] for row, item in enumerate(items)])
        best = []
        for masks in at_masks.split(_MASKS_AT_ONCE):
            probabilities = finite(self.model.cls(masks[None])[0]).softmax(-1)
            found = probabilities.topk(min(self.options.top_k or 1, probabilities.shape[-1]))
            best += [
                [*zip(ids, scores, strict=True)]
                for ids, scores in zip(found.indices.tolist(), found.values.tolist(), strict=True)
            ]
        words = iter(best)
        return [[next(words) for _ in item.facts] for item in items]

    def results(self, texts: Sequence[str], items: Sequence[Item], outputs: Sequence) -> list[Result]:
        """Return the best word of each mask with its probability and, with `top_k`, the best words."""
        results = []
        for number, words in enumerate(outputs[0], 1):
            scores = [(self.tokenizer.decode([id_]), rounded(score)) for id_, score in words]
            result = {"mask": number, "predicted": scores[0][0], "score": scores[0][1]}
            if self.options.top_k is not None:
                result["scores"] = [{"word": word, "score": score} for word, score in scores]
            results.append(result)
        return results

"""The vector of a text, from the hidden states of its tokens."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from modeling_roformer.heads import mean_over_tokens
from modeling_roformer.output.console import no_warnings
from modeling_roformer.output.extras import needs_extra

from .errors import ServingError
from .model_folder import named_when_unreadable
from .pooling import MODULES, check_model, modules_of, pooling_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig
    from transformers.utils import ModelOutput


class SentenceVectors(torch.nn.Module):
    """Modules of sentence-transformers that follow the encoder; without them, the model's own pooling.

    The modules compute in float32. `pooling` is the result of `pooling_of`, and `width` the number of dimensions.

    Args:
        directory: the model's folder.
        config: configuration of the loaded model.

    Raises:
        ServingError: the modules are not supported or cannot be loaded.
    """

    def __init__(self, directory: str | Path, config: "PretrainedConfig"):
        super().__init__()
        folder = check_model(directory)
        self.pooling, self.width = pooling_of(config.to_dict()), config.hidden_size
        self.parts = torch.nn.ModuleList()
        if not (modules := modules_of(folder)):
            return
        with needs_extra("sentence-transformers", ServingError):
            from sentence_transformers.util import import_from_string
        for kind, place in modules[1:]:
            with named_when_unreadable(folder / place), no_warnings("sentence_transformers"):
                self.parts.append(import_from_string(kind).load(str(folder), subfolder=place, local_files_only=True))
        with named_when_unreadable(folder / MODULES), torch.inference_mode():
            ids = torch.zeros(1, 2, dtype=torch.long)
            self.width = self.eval()._from_modules(torch.zeros(1, 2, self.width), ids, ids + 1, 1).shape[-1]

    @property
    def pools_prompts(self) -> bool:
        """Return whether vectors depend on the tokens of prompts."""
        return all(getattr(part, "include_prompt", True) for part in self.parts)

    def forward(
        self, outputs: "ModelOutput", ids: torch.Tensor, mask: torch.Tensor, prompt_length: int = 0
    ) -> torch.Tensor:
        """Return the vector of each text in float32, (b, width), from the outputs of the bare model.

        Args:
            ids, mask: the model's `input_ids` and `attention_mask`, with padding on the right.
            prompt_length: number of the first tokens of each text that belong to its prompt; a pooling may leave them
                out.
        """
        if self.parts:
            vectors = self._from_modules(outputs.last_hidden_state.float(), ids, mask, prompt_length)
        elif self.pooling == "pooler":
            vectors = outputs.pooler_output.float()
        else:
            vectors = mean_over_tokens(outputs.last_hidden_state, mask).float()
        return F.normalize(vectors, dim=-1) if self.pooling == "bi" else vectors

    def _from_modules(self, states: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, prompt_length: int):
        features = {
            "token_embeddings": states,
            "input_ids": ids,
            "attention_mask": mask,
            "prompt_length": prompt_length,
        }
        for part in self.parts:
            features = part(features)
        return features["sentence_embedding"]

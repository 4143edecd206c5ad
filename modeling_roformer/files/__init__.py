"""Files of any folder: read up to a maximum size, and written so that each appears complete or not at all."""

from modeling_roformer.tokenization.vocabulary import write_whole

from .atomic_folder import output_folder

__all__ = ["output_folder", "write_whole"]

"""Paths of the files that are not part of this repository."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_TOPS = {file.parent.name for file in REPOSITORY.glob("*/__init__.py")} - {"modeling_roformer"}
# Package -> its folder in the tree, for each room.
ROOMS = {"modeling_roformer": "modeling_roformer"} | {f"modeling_roformer.{top}": top for top in _TOPS}
_PLACES = [os.environ.get("ROFORMER_SHARED_DATA"), REPOSITORY.parent / "shared" / "data"]

# The data that this project was given beside its repository; None where it is not there.
SHARED = next((Path(place) for place in _PLACES if place and Path(place).is_dir()), None)

needs_shared = pytest.mark.skipif(
    SHARED is None, reason="the data beside the repository is not here (name its folder in ROFORMER_SHARED_DATA)"
)

"""Readers of Parquet: a folder of `roformer embed` is one table for them."""

import numpy as np
import pytest
from helpers.small_texts import LEGACY, TEXTS

from modeling_roformer.conversion import convert
from modeling_roformer.serving.vectors import embed

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Vectors of ten texts in three shards, whose ids are 0 to 9."""
    place = tmp_path_factory.mktemp("vectors")
    convert(LEGACY / "word", place / "model")
    lines = "".join(f"{number},{text}\n" for number, text in enumerate(TEXTS))
    (place / "texts.csv").write_text(f"id,text\n{lines}", encoding="utf-8")
    embed(place / "model", place / "texts.csv", place / "out", id_field="id", shard_size=4, device="cpu")
    return place / "out"


def duckdb_rows(folder, pattern):
    import duckdb

    return duckdb.execute(f"SELECT id, vector FROM read_parquet('{folder}{pattern}') ORDER BY id").fetchall()


def polars_rows(folder):
    import polars

    return polars.read_parquet(folder).sort("id").rows()


def pandas_rows(folder):
    import pandas

    return list(pandas.read_parquet(folder).sort_values("id").itertuples(index=False))


def datasets_rows(folder):
    import datasets

    found = datasets.load_dataset("parquet", data_dir=str(folder), cache_dir=str(folder.parent / "cache"))["train"]
    return sorted((row["id"], row["vector"]) for row in found)


@pytest.mark.parametrize(
    "read",
    [
        lambda folder: duckdb_rows(folder, "/*.parquet"),
        lambda folder: duckdb_rows(folder, "/**"),
        polars_rows,
        pandas_rows,
        datasets_rows,
    ],
    ids=["duckdb", "duckdb, all files", "polars", "pandas", "datasets"],
)
def test_the_rows_are_those_of_the_shards(folder, read):
    import pyarrow.parquet

    shards = [pyarrow.parquet.read_table(folder / f"{number:06d}.parquet") for number in range(3)]
    vectors = [vector for shard in shards for vector in shard["vector"].to_pylist()]
    rows = read(folder)
    assert [id_ for id_, _ in rows] == [str(number) for number in range(len(TEXTS))]
    np.testing.assert_array_equal(np.array([vector for _, vector in rows], np.float32), np.array(vectors, np.float32))

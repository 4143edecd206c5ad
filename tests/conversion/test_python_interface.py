"""`from modeling_roformer.conversion import convert` and the like, whatever was imported before."""

import json
import subprocess
import sys

import pytest
from helpers.paths import REPOSITORY

from modeling_roformer import conversion, hub

# Each order begins with nothing of this package imported. A program of the command's name does not import the models.
ORDERS = {
    "functions first": """
from modeling_roformer.conversion import convert, export_tf, info
from modeling_roformer.conversion.converter import convert as inner
""",
    "module first": """
from modeling_roformer.conversion.converter import convert as inner
from modeling_roformer.conversion import convert, export_tf, info
""",
    "import of the module": """
import modeling_roformer.conversion.converter
inner = modeling_roformer.conversion.converter.convert
import modeling_roformer.conversion.tf_exporter, modeling_roformer.conversion.word_embeddings
from modeling_roformer.conversion import convert, export_tf, info
""",
}
CHECK = """
import inspect, pickle, sys
import modeling_roformer.cli
import modeling_roformer.conversion.converter
module = sys.modules["modeling_roformer.conversion.converter"]
assert inspect.ismodule(module) and module.convert is convert is inner
assert modeling_roformer.conversion.converter.convert is convert and pickle.loads(pickle.dumps(convert)) is convert
assert all(map(inspect.isfunction, (convert, export_tf, info)))
convert(source, output)
print(order, info(output).family)
"""
PROGRAM = """
import json, sys, roformer_command
orders, source, output = json.loads(sys.argv[1]), *sys.argv[2:]
for order, code in orders.items():
    for name in [name for name in sys.modules if name.partition(".")[0] == "modeling_roformer"]:
        del sys.modules[name]
    exec(code, {"order": order, "source": source, "output": f"{output}/{order}"})
"""


@pytest.mark.slow
def test_functions_are_functions_in_any_order_of_imports(tmp_path):
    orders = json.dumps({order: code + CHECK for order, code in ORDERS.items()})
    source = REPOSITORY / "tests" / "fixtures" / "legacy" / "word"
    ran = subprocess.run([sys.executable, "-c", PROGRAM, orders, source, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.splitlines() == [f"{order} RoFormer" for order in ORDERS], ran.stderr


@pytest.mark.parametrize("package", [conversion, hub])
def test_every_exported_name_is_there(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__name__ == name and getattr(package, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018

"""`from modeling_roformer.conversion import convert` and the like, whatever was imported before."""

import subprocess
import sys

import pytest
from paths import REPOSITORY

from modeling_roformer import conversion, hub

# Each order is one process, since imports are remembered. A program of this name does not import the models.
ORDERS = {
    "functions first": """
from modeling_roformer.conversion import convert, convert_all, export_tf, info
from modeling_roformer.conversion.convert import convert as inner
""",
    "module first": """
from modeling_roformer.conversion.convert import convert as inner
from modeling_roformer.conversion import convert, convert_all, export_tf, info
""",
    "import of the module": """
import modeling_roformer.conversion.convert
inner = modeling_roformer.conversion.convert.convert
import modeling_roformer.conversion.export_tf, modeling_roformer.conversion.convert_all
from modeling_roformer.conversion import convert, convert_all, export_tf, info
""",
}
CHECK = """
import inspect, pickle, sys
import modeling_roformer.cli
import modeling_roformer.conversion.convert
module = sys.modules["modeling_roformer.conversion.convert"]
assert inspect.ismodule(module) and module.convert is convert is inner
assert modeling_roformer.conversion.convert.convert is convert and pickle.loads(pickle.dumps(convert)) is convert
assert all(map(inspect.isfunction, (convert, convert_all, export_tf, info)))
convert(sys.argv[1], sys.argv[2])
print(info(sys.argv[2]).family)
"""


@pytest.mark.parametrize("order", ORDERS)
def test_functions_are_functions_in_any_order_of_imports(order, tmp_path):
    program = tmp_path / "roformer"
    program.write_text(ORDERS[order] + CHECK, encoding="utf-8")
    source = REPOSITORY / "tests" / "fixtures" / "legacy" / "word"
    ran = subprocess.run([sys.executable, program, source, tmp_path / "out"], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == "RoFormer\n", ran.stderr


@pytest.mark.parametrize("package", [conversion, hub])
def test_what_a_package_says_that_it_has(package):
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__name__ == name and getattr(package, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018

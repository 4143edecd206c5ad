"""`import modeling_roformer` makes transformers use it, everywhere or not at all."""

import inspect
import subprocess
import sys

import pytest
import torch
import transformers
from helpers.small_models import small_config
from transformers.models.auto import modeling_auto

import modeling_roformer
from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM

SERVED = {
    "AutoModel": "RoFormerModel",
    "AutoModelForTextEncoding": "RoFormerModel",
    "AutoModelForPreTraining": "RoFormerForMaskedLM",
    "AutoModelForMaskedLM": "RoFormerForMaskedLM",
    "AutoModelForSequenceClassification": "RoFormerForSequenceClassification",
    "AutoModelForTokenClassification": "RoFormerForTokenClassification",
    "AutoModelForQuestionAnswering": "RoFormerForQuestionAnswering",
    "AutoModelForCausalLM": "RoFormerForCausalLM",
    "AutoModelForMultipleChoice": "RoFormerForMultipleChoice",
    "AutoModelForTripletMatching": "RoFormerForTripletMatching",
}


def auto_classes():
    return {
        name: value
        for name, value in {**vars(modeling_auto), **vars(modeling_roformer)}.items()
        if inspect.isclass(value) and getattr(value, "_model_mapping", None) is not None
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    RoFormerForMaskedLM(small_config()).save_pretrained(path)
    return path


@pytest.mark.parametrize("name", SERVED)
def test_auto_classes_give_ours(name, folder):
    auto_class = auto_classes()[name]
    for model in (auto_class.from_pretrained(folder), auto_class.from_config(small_config())):
        assert type(model).__name__ == SERVED[name]
        assert type(model).__module__.startswith("modeling_roformer.")


def test_no_auto_class_gives_transformers_own():
    for name, auto_class in auto_classes().items():
        if "roformer" in auto_class._model_mapping._model_mapping:
            assert auto_class._model_mapping[RoFormerConfig].__module__.startswith("modeling_roformer"), name


def test_names_of_transformers_stay_its_own():
    """README.md says so of `from transformers import RoFormerForMaskedLM`."""
    for name in ("RoFormerModel", "RoFormerForMaskedLM", "RoFormerConfig", "RoFormerTokenizer"):
        own = getattr(transformers, name)
        assert own.__module__.startswith("transformers.") and own is not getattr(modeling_roformer, name)


def test_registering_twice_is_harmless(folder):
    modeling_roformer.registration.registry.register()
    assert type(transformers.AutoModel.from_pretrained(folder)).__module__ == "modeling_roformer.model"


# Prints the tasks that the package adds, after comparing everything else with transformers' own state.
CHANGES = """
from transformers import pipelines
from transformers.models.auto import modeling_auto

def state():
    registry = pipelines.PIPELINE_REGISTRY
    tasks = {task: registry.check_task(task) for task in registry.get_supported_tasks()}
    classes = [cls for cls in vars(modeling_auto).values() if isinstance(cls, type)]
    mappings = [getattr(cls, "_model_mapping", None) for cls in classes]
    models = [dict(mapping._model_mapping) for mapping in mappings if mapping is not None]
    return tasks, models, registry.check_task.__func__, dict(pipelines.REMOVED_TASKS)

before, *rest = state()
import modeling_roformer
modeling_roformer.RoFormerConfig
after, *rest_after = state()
assert rest == rest_after and all(after[task] == found for task, found in before.items())
print(*after.keys() - before.keys())
"""


@pytest.mark.slow
def test_nothing_changes_for_other_models():
    done = subprocess.run([sys.executable, "-c", CHANGES], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["triplet-matching"]), done.stderr


def test_public_names_are_defined_in_files_that_travel():
    """Code that is copied next to a checkpoint needs each public class in a file of its own name."""
    for name in modeling_roformer.__all__:
        public = getattr(modeling_roformer, name)
        assert not inspect.getsourcefile(public).endswith("__init__.py"), name


def test_dir_shows_the_public_names():
    assert {name for name in dir(modeling_roformer) if not name.startswith("_")} == set(modeling_roformer.__all__)


@pytest.mark.slow
def test_import_is_light():
    """No dictionary, no data or metrics library; the command line starts without torch."""
    script = (
        "import sys, modeling_roformer\n"
        "heavy = {'datasets', 'evaluate', 'tensorflow', 'jieba', 'rjieba', 'modeling_roformer.conversion'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

"""Use of a checkpoint: its task on the Hub, and an example that runs."""

import json

from .kinds import architecture_of, kind_of

# The head in a class's name -> the Hub's pipeline tag.
TASKS = {
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "ForTripletMatching": "sentence-similarity",  # the Hub has no page for triplets
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "translation",
}
# The Hub's pipeline tag -> name of the pipeline, if it differs.
PIPELINES = {"sentence-similarity": "triplet-matching"}
TEXT = '"今天天气很好，我想去公园玩。"'
PAIR = '{"text": "今天天气很好。", "text_pair": "今天天气不错。"}'
ARGUMENTS = {
    "fill-mask": '"今天[MASK]很好，我想去公园玩。"',
    "text-generation": '"今天天气不错", do_sample=True, top_p=0.95, max_new_tokens=32',
    "sentence-similarity": '{"A": "我要还钱。", "B": "我欠了钱。", "C": "今天天气很好。"}',
}
PIPELINE = """from transformers import pipeline

# The folder, or its name on the Hub.
run = pipeline("{pipeline}", model={name})
print(run({arguments}))"""
# Examples of the tasks that have no pipeline in transformers.
MULTIPLE_CHOICE = """from transformers import AutoModelForMultipleChoice

model = AutoModelForMultipleChoice.from_pretrained({name})"""
QUESTION_ANSWERING = """import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

# The folder, or its name on the Hub.
tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForQuestionAnswering.from_pretrained({name})
inputs = tokenizer("他想去哪里？", "今天天气很好，他想去公园玩。", return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs)
start, end = outputs.start_logits.argmax(), outputs.end_logits.argmax()
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))"""
TRANSLATION = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

# The folder, or its name on the Hub.
tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForSeq2SeqLM.from_pretrained({name})
inputs = tokenizer("A dog runs.", return_tensors="pt")
output = model.generate(**inputs, num_beams=4, max_new_tokens=256)
print(tokenizer.decode(output[0], skip_special_tokens=True))"""
WITHOUT_PIPELINE = {
    "multiple-choice": MULTIPLE_CHOICE,
    "question-answering": QUESTION_ANSWERING,
    "translation": TRANSLATION,
}
SENTENCES = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# The folder, or its name on the Hub.
tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForCausalLM.from_pretrained({name})

# Sentence vectors.
inputs = tokenizer(["广州和深圳哪个好？", "深圳和广州，哪个比较好"], padding=True, return_tensors="pt")
with torch.no_grad():
    vectors = model(**inputs).pooler_output
print(torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0).item())

# A similar sentence.
inputs = tokenizer("广州和深圳哪个好？", return_tensors="pt")
output = model.generate(**inputs, do_sample=True, top_p=0.95, max_new_tokens=32)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))"""


def task_of(config: dict, word_level: bool) -> str:
    """Return the Hub's pipeline tag for the head that a config.json names; fill-mask if it names no head.

    >>> task_of({"architectures": ["RoFormerForCausalLM"], "is_decoder": True}, word_level=False)
    'text-generation'
    """
    if makes_sentences(config, word_level):
        return "sentence-similarity"
    architecture = architecture_of(config) or "ForMaskedLM"
    return next((task for head, task in TASKS.items() if architecture.endswith(head)), "feature-extraction")


def example(name: str, config: dict, word_level: bool, pairs: bool = False) -> str:
    """Return a few lines of Python that use the checkpoint, to follow `import modeling_roformer`.

    With `pairs`, it is a classifier of pairs of texts.
    """
    task, literal = task_of(config, word_level), json.dumps(name.replace("`", "'"), ensure_ascii=False)
    if makes_sentences(config, word_level):
        return SENTENCES.replace("{name}", literal)
    if task in WITHOUT_PIPELINE:
        return WITHOUT_PIPELINE[task].replace("{name}", literal)
    arguments = PAIR if pairs and task == "text-classification" else ARGUMENTS.get(task, TEXT)
    if config.get("problem_type") == "multi_label_classification":
        arguments += ", top_k=None"  # the probability of each label
    return PIPELINE.format(pipeline=PIPELINES.get(task, task), name=literal, arguments=arguments)


def makes_sentences(config: dict, word_level: bool) -> bool:
    """Return whether it is a complete RoFormer-Sim or SimBERT with its language model, and not another head trained on
    one."""
    head = architecture_of(config) or "ForCausalLM"
    return kind_of(config, word_level) in ("sim", "simbert") and head.endswith("ForCausalLM")

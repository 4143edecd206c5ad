"""Program of each process that test_processes.py starts with torchrun: `two_processes.py FOLDER`.

Each process writes its observations into FOLDER/RANK.json.
"""

import json
import os
import runpy
import shutil
import signal
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor

from modeling_roformer.training.pretraining.stage_trainer import StageTrainer
from modeling_roformer.training.runs.device import processes

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pretrain_mlm.py"
training_step = StageTrainer.training_step


def run_script(arguments: list[str]) -> int:
    """Run examples/pretrain_mlm.py in this process and return its exit code."""
    sys.argv = [str(SCRIPT), *arguments]
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as stop:
        return stop.code
    return 0


def stopped_and_continued(arguments: list[str]) -> dict:
    """Stop a run by a signal to the last process in step 2 of stage 2, resume it, and run it again. Return the exit
    codes.

    A damaged checkpoint is added before resuming, and a model is damaged before the last run.
    """
    seen = {"are_sharded": set(), "kinds": set()}

    def patched(self, *inputs):
        seen["are_sharded"].add(all(isinstance(parameter, DTensor) for parameter in self.model.parameters()))
        seen["kinds"].add(self.accelerator.distributed_type.value)
        config = self.accelerator.unwrap_model(self.model).config
        assert config.unpad_inputs and config.sparse_prediction and config.tie_word_embeddings
        is_last = self.args.process_index == self.args.world_size - 1
        if is_last and codes == [] and (self.folder.name, self.state.global_step) == ("stage-2", 1):
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *inputs)

    StageTrainer.training_step = patched
    codes: list[int] = []
    codes += [run_script(arguments)]
    processes().wait_for_everyone()
    if processes().is_main_process:
        damage_a_later_checkpoint(Path(arguments[arguments.index("--output") + 1]) / "stage-2")
    processes().wait_for_everyone()
    codes += [run_script(arguments)]
    processes().wait_for_everyone()
    if processes().is_main_process:
        last = max(Path(arguments[arguments.index("--output") + 1]).glob("stage-*/model"))
        (last / "tokenizer_config.json").unlink()
    processes().wait_for_everyone()
    codes += [run_script(arguments)]
    return {"codes": codes, **{name: sorted(values) for name, values in seen.items()}}


def damage_a_later_checkpoint(stage: Path) -> None:
    """Add a checkpoint of a later step with one wrong bit in the last process's random state."""
    later = shutil.copytree(stage / "checkpoint-2", stage / "checkpoint-3")
    file = later / "rng_state_1.pth"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def on_cpus_too() -> None:
    """Make accelerate treat CPU processes as GPU processes: otherwise it runs DDP in place of FSDP."""
    begin = PartialState.__init__

    def patched(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = patched


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    seen = {"ddp": stopped_and_continued(plan["ddp"])}
    os.environ |= plan["environment"]
    on_cpus_too()
    seen["fsdp"] = stopped_and_continued(plan["fsdp"])
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(seen), encoding="utf-8")

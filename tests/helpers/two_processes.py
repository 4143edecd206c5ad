"""What each of the processes does that test_processes.py has torchrun start: `two_processes.py FOLDER`.

Each writes what it saw into FOLDER/RANK.json.
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
    """The exit code of examples/pretrain_mlm.py in this process."""
    sys.argv = [str(SCRIPT), *arguments]
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as stop:
        return stop.code
    return 0


def stopped_and_continued(arguments: list[str]) -> dict:
    """Exit codes of a run that the last process is asked to end in step 2 of stage 2, and of the same command after it.

    In between a damaged checkpoint is put beside the last one. In the end it is asked for again, with a damaged model.
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
    """Have the run find a checkpoint of a later step, in which one bit of the last process's random state is another one."""
    later = shutil.copytree(stage / "checkpoint-2", stage / "checkpoint-3")
    file = later / "rng_state_1.pth"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def on_cpus_too() -> None:
    """Have accelerate take processes on a CPU for such with a GPU each: otherwise it runs DDP there in place of FSDP."""
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

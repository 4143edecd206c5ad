"""Training with several seeds, of which the best model is kept."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from transformers import Trainer

from ..comparing.curves import draw_learning_curves
from ..runs.run_folder import Run
from ..runs.spread import print_scores

Scores = Mapping[str, Mapping[str, float]]  # split -> name -> value


def train_seeds(
    run: Run,
    seeds: Sequence[int],
    train: Callable[[int, Path], Trainer],
    scores_of: Callable[[Trainer], Scores],
    save: Callable[[Trainer, int, Scores], None],
    metric: str = "accuracy",
    **results,
) -> None:
    """Train with each seed that the run has no results of, save the model of the best one, and print all scores.

    `results.json` gets `results`, and under `seeds` the scores and the log of each seed. `curves.png` gets the curves.

    Args:
        run: the run, as `start_run` yields it.
        seeds: the seeds.
        train: function that trains with a seed, from the last checkpoint in the folder on, and returns the Trainer with
            the model of the best epoch.
        scores_of: function that returns the scores of the trained model, one split of which is "validation".
        save: function that saves the model of a seed.
        metric: name of the validation score by which a seed is the best; the lowest is the best if the Trainer's
            `greater_is_better` is False.

    >>> train_seeds(run, [0, 1], fine_tune, scores_of, save, texts=parts.num_rows)
    """
    found = run.results.setdefault("seeds", {})
    for seed in seeds:
        folder = run.folder / f"seed-{seed}"
        if str(seed) not in found:
            print(f"seed {seed}")
            trainer = train(seed, folder)
            scores, sign = scores_of(trainer), -1 if trainer.args.greater_is_better is False else 1
            before = [sign * of["scores"]["validation"][metric] for of in found.values()]
            if all(sign * scores["validation"][metric] > value for value in before):
                save(trainer, seed, scores)
            found[str(seed)] = {"scores": scores, "log": trainer.state.log_history}
            run.results.update(results)
            run.save_results()
        shutil.rmtree(folder, ignore_errors=True)  # its checkpoints
    print_scores({f"seed {seed}": result["scores"] for seed, result in found.items()})
    panels = {"training loss": "loss", "validation loss": "eval_loss"}
    panels[f"validation {metric.replace('_', ' ')}"] = f"eval_{metric}"
    draw_learning_curves({seed: result["log"] for seed, result in found.items()}, run.folder / "curves.png", panels)

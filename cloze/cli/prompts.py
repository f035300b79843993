"""The options of a prompt, which `cloze predict` and `cloze evaluate` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from cloze.tasks.kinds.classification import Classification
    from cloze.tasks.kinds.prompted import Prompt

Template = Annotated[str | None, typer.Option(help="Prompt any checkpoint: '{text} It was {answer}.'")]
Verbalise = Annotated[str | None, typer.Option(help="The answer for each label: good=great,bad=terrible.")]
Shots = Annotated[int, typer.Option(min=0, help="Labelled examples (demonstrations) per prompt.")]
Demonstrations = Annotated[str | None, typer.Option(help="Labelled text from which --shots are drawn.")]
Normalise = Annotated[str | None, typer.Option(help="Divide by P(answer | this text): 'Answer:'.")]


class TaskPrompt(NamedTuple):
    """A prompt, and the task that reads its files."""

    prompt: Prompt
    task: Classification


def prompt_of(
    template: str | None, verbalise: str | None, shots: int, demonstrations: str | None, *, seed: int | None, text: str | None,
    text_b: str | None, label: str | None, normalise: str | None = None, **folder_options: object,
) -> TaskPrompt | None:
    """The prompt of the options; None without a template.

    `folder_options` are the values of options that only fine-tuned folders have, by their names: next to a template, one that is
    not None is refused.
    """
    from cloze.errors import TaskError
    from cloze.tasks.kinds.prompted import Prompt, task_for

    if seed is not None and not shots:
        raise TaskError(f"--seed {seed}: nothing is drawn at random. Omit it, or ask for demonstrations: --shots 4")
    if template is None:
        if verbalise is not None or shots or demonstrations is not None or normalise is not None:
            options = "--shots, --verbalise, --normalise and --demonstrations configure a prompt"
            raise TaskError(f"{options}. Add one: --template '{{text}} It was {{answer}}.'")
        return None
    idle = next((name for name, value in folder_options.items() if value is not None), None)
    if idle is not None:
        option = idle.replace("_", "-")
        raise TaskError(f"--{option} is for a fine-tuned folder; --template prompts any checkpoint. Omit one of them.")
    prompt = Prompt.of(
        template, verbalise=verbalise, shots=shots, demonstrations=demonstrations, seed=seed or 0, context=normalise,
        text=text, text_b=text_b, label=label,
    )
    return TaskPrompt(prompt, task_for(prompt.template, text=text, text_b=text_b, label=label))

"""Supervised tasks. Each is one file and one row in this table, and is imported when it is first used."""

from dataclasses import replace

from bertie.errors import DataError, UsageError
from bertie.io.tables import Example
from bertie.models.facts import Facts
from bertie.registry import Later, Registry, package_of
from bertie.tasks.answerer import Prediction
from bertie.tasks.base import Task
from bertie.training_facts import TrainingFacts

__all__ = [
    "TASKS",
    "Example",
    "Prediction",
    "Task",
    "task_name",
    "task_of",
    "with_task",
]

TASKS: Registry[type[Task]] = Registry(
    "task",
    [
        ("sequence", Later("bertie.tasks.sequence", "SequenceTask")),
        ("regression", Later("bertie.tasks.regression", "RegressionTask")),
        ("multilabel", Later("bertie.tasks.multilabel", "MultiLabelTask")),
        ("choice", Later("bertie.tasks.choice", "ChoiceTask")),
        ("rank", Later("bertie.tasks.rank", "RankTask")),
        ("relation", Later("bertie.tasks.relation", "RelationTask")),
        ("tagging", Later("bertie.tasks.tagging", "TaggingTask")),
        ("span", Later("bertie.tasks.span", "SpanTask")),
        ("parse", Later("bertie.tasks.parse", "ParseTask")),
        ("embed", Later("bertie.tasks.embed", "EmbedTask")),
        ("few-shot", Later("bertie.tasks.few_shot", "FewShotTask")),
        ("soft", Later("bertie.tasks.soft", "SoftTask")),
        ("text2text", Later("bertie.tasks.text2text", "Text2TextTask")),
        ("pattern", Later("bertie.tasks.pattern", "PatternTask")),
        ("several", Later("bertie.tasks.several", "SeveralTask")),
    ],
    group="bertie.tasks",
)
"""Tasks by name. A model folder without a task has the first task whose head it has."""


def task_name(task: Task) -> str:
    """Returns the name of a task in the table, as it is saved with a model."""
    return task.saved_as or next(name for name, kind in TASKS.items() if kind is type(task))


def with_task(facts: TrainingFacts, task: Task) -> TrainingFacts:
    """Returns the facts of a training for a task with its settings."""
    module = type(task).__module__
    package = "" if module.startswith("bertie.") else package_of(module)
    return replace(facts, task=task_name(task), task_package=package, task_options=task.settings())


def task_of(facts: Facts) -> Task | None:
    """Returns the task of a model: the one that its folder names, or the first one for its head, or None.

    Raises DataError when the folder names a task with another head, one that is not installed, or unknown settings.
    """
    trained = facts.training_facts
    if trained.task and trained.task not in TASKS:
        add = f"pip install {trained.task_package}" if trained.task_package else "bertie.register('task', NAME, CLASS)"
        raise DataError(
            f"The model was trained for the task {trained.task!r}, which is not part of Bertie and not installed here. "
            f"Add it: {add}"
        )
    if trained.task not in TASKS:
        tasks = (kind.of_model(facts, {}) for _, kind in TASKS.items())
        return next((task for task in tasks if task is not None), None)
    try:
        task = TASKS[trained.task].of_model(facts, trained.task_options)
    except UsageError as error:
        raise DataError(f"bertie.json: {error}") from None
    if task is None:
        raise DataError(f"bertie.json names the task {trained.task!r}, but the model has the head of another task.")
    return task

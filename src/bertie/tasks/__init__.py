"""Supervised tasks: one file and one row here each."""

from bertie.registry import Registry
from bertie.tasks.base import Prediction, Task
from bertie.tasks.sequence import SequenceTask

__all__ = ["TASKS", "Prediction", "SequenceTask", "Task"]

TASKS: Registry[type[SequenceTask]] = Registry("task", [("sequence", SequenceTask)])

"""What the estimators share: how X is read, and the folder of the fitted model, which a pickle contains."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from bertie import Model, load
from bertie.apps.sklearn.inputs import ColumnValues, InputError, Texts, rows_of
from bertie.platform import FolderKind


class ModelFiles:
    """The folder of a model. A pickle of this value contains the files, and opens them in a temporary folder."""

    def __init__(self, folder: Path, temporary: "TemporaryDirectory[str] | None" = None) -> None:
        self.folder, self._temporary = folder, temporary
        self._models: dict[str, Model] = {}

    @classmethod
    def taken(cls, folder: Path) -> Self:
        """Returns the files of a folder, which is moved to one that lasts as long as the value."""
        temporary = TemporaryDirectory(prefix="bertie-model-")
        shutil.move(folder, Path(temporary.name) / "model")
        return cls(Path(temporary.name) / "model", temporary)

    @classmethod
    def opened(cls, name: str | Path, device: str) -> Self:
        """Returns the files of a model where they are, and opens it. Raises DataError for one that cannot be read."""
        model = load(name, device)
        files = cls(model.folder or Path(name))
        files._models[device] = model
        return files

    def model(self, device: str) -> Model:
        """Returns the model, open on a device."""
        if device not in self._models:
            self._models[device] = load(self.folder, device)
        return self._models[device]

    def __getstate__(self) -> dict[str, bytes]:
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}

    def __setstate__(self, files: Mapping[str, bytes]) -> None:
        temporary = TemporaryDirectory(prefix="bertie-model-")
        folder = Path(temporary.name) / "model"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        self.__init__(folder, temporary)  # type: ignore[misc]


class TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What the estimators share: how X is read, and the fitted model."""

    _files: ModelFiles

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_files")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    @property
    def folder_(self) -> Path:
        """The folder of the fitted model. A temporary one lasts as long as the estimator."""
        check_is_fitted(self)
        return self._files.folder

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Copies the fitted model to a folder for `bertie.load`, and returns the folder.

        Raises UsageError for a folder with files.
        """
        source = self.folder_
        with FolderKind.named("model").new(Path(folder), overwrite=overwrite) as target:
            shutil.copytree(source, target, dirs_exist_ok=True)
        return Path(folder)

    def _rows(self, X: Texts, **fit: object) -> list[ColumnValues]:
        """Returns the texts of each row. fit: `y`, where the number and the names of columns are learned."""
        learns = bool(fit)
        rows = rows_of(X)
        width = len(rows[0])
        if not learns:
            check_is_fitted(self)
        validate_data(self, X, reset=learns, skip_check_array=True, ensure_2d=False, **fit)
        if learns:
            self.n_features_in_ = width
        elif width != self.n_features_in_:
            raise InputError(
                f"X has {width} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input."
            )
        return rows

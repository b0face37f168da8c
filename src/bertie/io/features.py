"""Feature vectors beside the texts of a table: arrays, pictures and sounds, one of each per row.

    [[...], [...]]             a list of lists (jsonl, parquet)
    regions.npz:17             an array of a file: .npy, .npz, .safetensors; after the colon its name
    scene.png                  a picture -> patches of pixels, each with its box
    data:image/png;base64,...  a picture in the row itself
    seven.wav                  a sound -> frames of a log-mel spectrogram

Each becomes (N, D) float32. Paths are relative to the table. Dosovitskiy et al. 2021, 3.1 (patches).
"""

import base64
import io
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bertie.training_facts import FeatureConfig

_Vectors = NDArray[np.float32]
MOST_NUMBERS = 1 << 26  # of the vectors of one row: 256 MiB


class BadFeaturesError(Exception):
    """A row whose feature vectors cannot be read."""


def read_vectors(value: object, folder: Path, config: FeatureConfig) -> _Vectors:
    """Returns the feature vectors of a row's field (N, D). Raises BadFeaturesError with the reason."""
    try:
        vectors = _read(value, folder, config)
    except Exception as error:  # each library has its own errors for a broken file
        raise BadFeaturesError(f"unreadable {config.column} ({str(error)[:120]})") from None
    return checked_vectors(vectors, config.column)


def checked_vectors(array: NDArray[np.generic], name: str) -> _Vectors:
    """Returns an array as feature vectors (N, D). name: for messages. Raises BadFeaturesError with the reason."""
    if array.ndim != 2 or not array.size or array.size > MOST_NUMBERS or array.dtype.kind not in "biuf":
        raise BadFeaturesError(f"{name} is no table of numbers, but an array {array.shape} of {array.dtype}")
    with np.errstate(over="ignore"):  # what is too large is refused as not finite
        vectors = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(vectors).all():
        raise BadFeaturesError(f"{name} has numbers that are not finite")
    return vectors


def _read(value: Any, folder: Path, config: FeatureConfig) -> NDArray[Any]:
    if isinstance(value, list):
        with np.errstate(over="ignore"):  # what is too large is refused as not finite
            return np.array(value, np.float32)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("empty")
    if value.startswith("data:image/"):
        return patches(io.BytesIO(base64.b64decode(value.partition(",")[2], validate=True)), config)
    path, _, name = value.partition(":")
    if Path(path).suffix.lower() in ARRAYS:
        changed = (folder / path).stat()
        arrays = _arrays(folder / path, changed.st_mtime_ns, changed.st_size)
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(map(repr, arrays))}")
        array: NDArray[Any] = arrays[name]
        return array
    suffix = Path(value).suffix.lower()
    if suffix not in READERS:
        raise ValueError(f"{value[:60]!r} is none of {', '.join((*ARRAYS, *READERS))}")
    return READERS[suffix](folder / value, config)


@lru_cache(maxsize=4)
def _arrays(path: Path, changed_ns: int, size: int) -> Any:
    """Returns the arrays of a file by name; a .npy has one, without a name. Objects in a file are not read.

    changed_ns, size: of the file, so that it is read again after it has changed.
    """
    if path.suffix.lower() == ".safetensors":
        from safetensors.numpy import load_file

        return load_file(path)
    content = np.load(path, allow_pickle=False)
    return {"": content} if isinstance(content, np.ndarray) else content


def patches(path: Path | IO[bytes], config: FeatureConfig) -> _Vectors:
    """Returns the patches of a picture, row by row.

    A patch is 3 P P numbers from -1 to 1, then the box (left, top, right, bottom) from -P to P. The 4 numbers of the
    box therefore weigh about as much as the pixels.
    """
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # 16 bits, which `convert` would cut to 255
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        colors = upright.convert("RGBA")  # what is transparent is seen on white paper
        picture = Image.alpha_composite(Image.new("RGBA", colors.size, "white"), colors).convert("RGB")
    if config.picture_size is not None:
        picture = picture.resize((config.picture_size, config.picture_size), Image.Resampling.BILINEAR)
    side = config.patch_size
    down, across = picture.height // side, picture.width // side
    if not down * across:
        raise ValueError(f"{picture.width} x {picture.height} pixels are less than a patch of {side}")
    pixels_HWC = np.asarray(picture, np.float32)[: down * side, : across * side] / 127.5 - 1
    parts = pixels_HWC.reshape(down, side, across, side, 3).transpose(0, 2, 1, 3, 4).reshape(down * across, -1)
    top, left = (index.ravel() for index in np.mgrid[:down, :across])
    box = np.stack([left / across, top / down, (left + 1) / across, (top + 1) / down], 1)
    vectors: _Vectors = np.concatenate([parts, (2 * box - 1) * side], 1).astype(np.float32)
    plain = (parts.reshape(len(parts), -1, 3) == parts[:, None, :3]).all((1, 2))
    return vectors[~plain] if config.skip_plain and not plain.all() else vectors


WINDOW_S, STEP_S = 0.025, 0.010  # of a spectrogram; Hsu et al. 2021 and Gong et al. 2021
FLOOR = 1e-10  # below any sound, so that silence has a logarithm


def read_frames(path: Path, config: FeatureConfig) -> _Vectors:
    """Returns the log-mel frames of a sound, `stacked_frames` of them in a vector, all scaled together."""
    from scipy.io import wavfile

    with warnings.catch_warnings(action="ignore"):  # of chunks beside the sound
        if not _is_stream(path):
            warnings.filterwarnings("error", "Reached EOF")
        rate, samples = wavfile.read(path)
    if rate < 1 / STEP_S:
        raise ValueError(f"{rate} samples per second are too few")
    scale = np.iinfo(samples.dtype).max if np.issubdtype(samples.dtype, np.integer) else 1.0
    samples = samples.astype(np.float64) / scale
    if scale == np.iinfo(np.uint8).max:  # 8 bits have no sign: silence is 128
        samples = 2 * samples - 256 / scale
    if samples.ndim == 2:
        samples = samples.mean(1)
    mel_FM = log_mel(samples, rate, bins=config.mel_bins)
    mel_FM = (mel_FM - mel_FM.mean()) / (mel_FM.std() + 1e-5)
    count = len(mel_FM) // config.stacked_frames
    if not count:
        raise ValueError(f"{len(samples) / rate:z.3f} s of sound are shorter than {config.stacked_frames} frames")
    stacked: _Vectors = mel_FM[: count * config.stacked_frames].reshape(count, -1).astype(np.float32)
    return stacked


def _is_stream(path: Path) -> bool:
    """Returns whether the header has no size: the sound was written to a pipe, and ends where the file ends."""
    with path.open("rb") as file:
        return file.read(8)[4:] == b"\xff" * 4


def log_mel(samples: NDArray[np.float64], rate: int, *, bins: int) -> NDArray[np.float64]:
    """Returns the natural logarithm of a mel spectrogram of power (F, bins). samples: from -1 to 1."""
    from scipy.signal.windows import hann

    size, step = round(WINDOW_S * rate), round(STEP_S * rate)
    if len(samples) < size:
        samples = np.pad(samples, (0, size - len(samples)))
    count = 1 + (len(samples) - size) // step
    points = 1 << (size - 1).bit_length()
    windows = np.lib.stride_tricks.sliding_window_view(samples, size)[::step][:count]
    power_FK = np.abs(np.fft.rfft(windows * hann(size, sym=False), points)) ** 2
    mel_FM = power_FK @ mel_filters(np.fft.rfftfreq(points, 1 / rate), bins)
    logs: NDArray[np.float64] = np.log(np.maximum(mel_FM, FLOOR))
    return logs


def mel_filters(hertz_K: NDArray[Any], bins: int) -> NDArray[np.float64]:
    """Returns triangular filters (K, bins) whose centers have equal distances on O'Shaughnessy's mel scale."""
    most = 2595 * np.log10(1 + hertz_K[-1] / 700)
    edges = 700 * (10 ** (np.linspace(0, most, bins + 2) / 2595) - 1)
    rising = (hertz_K[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - hertz_K[:, None]) / np.diff(edges)[1:]
    filters: NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling))
    return filters


ARRAYS = (".npy", ".npz", ".safetensors")
READERS: dict[str, Callable[[Path, FeatureConfig], _Vectors]] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"), patches),
    ".wav": read_frames,
}
"""Extension of a file -> what makes feature vectors of it."""

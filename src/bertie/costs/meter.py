"""What a run takes: time, peak memory and energy, read at the start, at log steps and at the end.

Energy is read from the counters of the machine: RAPL for processors (Linux powercap), NVML for NVIDIA GPUs. RAPL counts
all programs on the machine. Where no counter can be read, energy is estimated, and the method says so.
"""

import os
import re
import resource
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertie.costs import catalog
from bertie.files import Json, JsonObject

POWERCAP = Path("/sys/class/powercap")
_STATUS_FILE = Path("/proc/self/status")
JOULES = 3.6e6  # of a kWh
THEN = "; then "  # between the methods of a run's starts


@dataclass(frozen=True)
class Usage:
    """What a run took. cpu_s: processor time of its main process; method: how the energy became known.

    kwh is None where nothing is known about the power of the machine.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    kwh: float | None
    method: str

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return asdict(self)


class Rapl:
    """The energy of the processors and their memory since the counter was made, in joules.

    The files count microjoules and start again at `max_energy_range_uj`, after minutes or hours. Each reading may thus
    be at most one round after the one before.
    """

    name = "RAPL, all programs on the processors"

    def __init__(self, root: Path = POWERCAP) -> None:
        zones = {path: _text(path / "name") for path in root.glob("intel-rapl:*")}
        packages = [path for path, name in zones.items() if re.fullmatch(r"package-\d+", name)]
        memory = [path for path, name in zones.items() if name == "dram"]
        self._zones = [path for path in (*packages, *memory) if _microjoules(path) is not None]
        self._last = {path: _microjoules(path) or 0 for path in self._zones}
        self._range = {path: int(_text(path / "max_energy_range_uj") or 0) for path in self._zones}
        self._sum = 0
        self.readable = bool(packages) and set(packages) <= set(self._zones)

    def joules(self) -> float:
        """Returns the energy since the start. Reads the files."""
        for path in self._zones:
            now = _microjoules(path)
            if now is None:  # the file can no longer be read: the reading before counts
                continue
            used = now - self._last[path]
            self._sum += used if used >= 0 else used + self._range[path]
            self._last[path] = now
        return self._sum / 1e6


class Nvml:
    """The energy of this process's GPUs since the counter was made, in joules. Needs nvidia-ml-py."""

    name = "NVML"

    def __init__(self, gpus: int) -> None:
        self._handles: list[Any] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml: Any = pynvml
            self._handles = [self._handle(number) for number in range(gpus)]
            self._first = [self._millijoules(handle) for handle in self._handles]
        except Exception:  # no library, no driver, or a GPU that does not count: the energy is estimated
            self._handles = []
        self.readable = bool(self._handles)

    def joules(self) -> float:
        """Returns the energy since the start."""
        pairs = zip(self._handles, self._first, strict=True)
        return sum(self._millijoules(handle) - first for handle, first in pairs) / 1000

    def _handle(self, number: int) -> object:
        """Returns the GPU that torch counts as `number`. NVML does not know CUDA_VISIBLE_DEVICES."""
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        name = visible[number] if number < len(visible) else str(number)
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _millijoules(self, handle: object) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))


class Meter:
    """Time, memory and energy of a run, also over several starts. A reading takes microseconds.

    processes: those of the run on this machine; gpu: name of the GPU that each of them has, "" without.
    """

    def __init__(self, processes: int = 1, gpu: str = "", powercap: Path = POWERCAP) -> None:
        self._processes, self._gpu = processes, gpu
        self._rapl, self._nvml = Rapl(powercap), Nvml(processes if gpu else 0)
        self._began, self._cpu_began = time.monotonic(), time.process_time()
        self._before: Json = {}

    def resume(self, before: Mapping[str, object]) -> None:
        """Adds what the earlier starts of a run took: `Usage.as_json()`, or nothing."""
        self._before = before

    def read(self) -> Usage:
        """Returns what the run took so far."""
        seconds, cpu_s = time.monotonic() - self._began, time.process_time() - self._cpu_began
        joules, method = self._energy(seconds, cpu_s)
        before = self._before
        if before:
            methods = before["method"].split(THEN)
            method = THEN.join(methods if methods[-1] == method else [*methods, method])
        known = joules is not None and before.get("kwh", 0.0) is not None
        return Usage(
            seconds + before.get("seconds", 0.0),
            cpu_s + before.get("cpu_s", 0.0),
            max(peak_bytes("cuda" if self._gpu else "cpu"), before.get("peak_bytes", 0)),
            (joules or 0.0) / JOULES + before.get("kwh", 0.0) if known else None,
            method,
        )

    def _energy(self, seconds: float, cpu_s: float) -> tuple[float | None, str]:
        of_processor = self._rapl.joules() if self._rapl.readable else None
        if not self._gpu:
            if of_processor is not None:
                return of_processor, f"measured ({Rapl.name})"
            return (
                catalog.Device.THREAD_WATTS * cpu_s * self._processes,
                f"estimated ({catalog.Device.THREAD_WATTS:g} W per busy thread)",
            )
        if self._nvml.readable:
            names = [Nvml.name] + ([Rapl.name] if of_processor is not None else [])
            return self._nvml.joules() + (of_processor or 0.0), f"measured ({' and '.join(names)})"
        if (device := catalog.find_device(self._gpu)) is None:
            return None, f"not known (NVML cannot be read, and {self._gpu} is not in the catalog)"
        watts = catalog.Device.LOAD * device.watts * self._processes
        return watts * seconds, f"estimated ({catalog.Device.LOAD:.0%} of {device.watts:g} W per GPU)"


def resident_peak_bytes() -> int:
    """Returns this process's peak resident memory so far.

    Linux's getrusage also counts the parent at the moment it started this process, so there the kernel's own count for
    the program is read. macOS counts in bytes.
    """
    if match := re.search(r"VmHWM:\s*(\d+) kB", _text(_STATUS_FILE)):
        return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_bytes() -> int:
    """Returns this process's resident memory now; its peak where the system does not tell."""
    match = re.search(r"VmRSS:\s*(\d+) kB", _text(_STATUS_FILE))
    return int(match[1]) * 1024 if match else resident_peak_bytes()


def forget_peak() -> None:
    """Makes this process's peak its memory now, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: str = "cpu") -> int:
    """Returns the peak memory so far: of the process on a CPU, of torch's tensors on a GPU."""
    if not device.startswith("cuda"):
        return resident_peak_bytes()
    import torch

    return int(torch.cuda.max_memory_allocated(device))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _microjoules(zone: Path) -> int | None:
    text = _text(zone / "energy_uj")
    return int(text) if text.isdigit() else None

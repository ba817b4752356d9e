"""What the meter reads of a process tree."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.meter import CpuMeter, ProcessEnded, cpu_seconds, status_mib, tree

BURN = "import sys\nsum(range(1_000_000))\nprint(flush=True)\nsys.stdin.readline()"


@pytest.fixture
def burner() -> subprocess.Popen[bytes]:
    """A child that has used some CPU by the time it prints a line, and ends with its stdin."""
    child = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.communicate(b"\n")


def test_a_child_born_during_the_measurement_counts_in_full() -> None:
    meter = CpuMeter({"own": os.getpid()})
    meter.begin()
    child = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in tree([os.getpid()])
        assert meter.end()["own"] >= cpu_seconds(child.pid) * 0.5 > 0
    finally:
        end(child)


def test_a_process_that_ended_meanwhile_makes_the_measurement_void(burner: subprocess.Popen[bytes]) -> None:
    meter = CpuMeter({"burner": burner.pid})
    meter.begin()
    end(burner)
    with pytest.raises(ProcessEnded):
        meter.end()


def test_the_peak_is_at_least_what_is_resident() -> None:
    # Of a process that stands still: between two reads of its own figures, this one may grow.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as still:
        assert still.stdin is not None
        assert still.stdout is not None
        still.stdin.write(b"ready\n")
        still.stdin.flush()
        assert still.stdout.readline() == b"ready\n"
        assert status_mib(still.pid, "VmHWM") >= status_mib(still.pid, "VmRSS") > 0


def test_an_unknown_memory_figure_is_an_error() -> None:
    with pytest.raises(KeyError):
        status_mib(os.getpid(), "VmNothing")

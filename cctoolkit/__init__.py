"""cctoolkit: packet captures, congestion control and queues, for notebooks and the command line.

Packets in one table, whatever made them; everything else is a function of that table. Names are loaded at
first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

#: Public names and the modules they live in.
_WHERE = {
    "AlgorithmError": "algorithm",
    "BatchResult": "batch.run",
    "BatchSettings": "batch.settings",
    "Bottleneck": "scenario",
    "Capture": "capture.model",
    "CountMinSketch": "sketch",
    "DataPlaneTables": "rtt",
    "Flow": "scenario",
    "FlowStatistics": "flows",
    "LongFlows": "sketch",
    "PcapWriter": "capture.writer",
    "Queue": "scenario",
    "RttPairing": "rtt",
    "Run": "run",
    "Scenario": "scenario",
    "Selection": "capture.selection",
    "Simulation": "sim.simulation",
    "SlotTable": "slots",
    "cdf": "metrics",
    "compare_taps": "tap_comparison",
    "compute_slots": "slots",
    "fetch_mawi": "capture.mawi",
    "filter_capture": "capture.filtering",
    "find_trace": "capture.mawi",
    "flow_completion_times": "metrics",
    "flow_table": "flows",
    "goodput": "metrics",
    "iter_capture": "capture.reader",
    "jain_index": "metrics",
    "jain_over_time": "metrics",
    "jenks_classes": "separation.jenks",
    "league": "aqm_league",
    "link_utilisation": "metrics",
    "load_run": "run",
    "long_flows": "sketch",
    "paper_numbers": "papers",
    "queue_delay": "metrics",
    "queue_loss": "metrics",
    "read_capture": "capture.reader",
    "read_scenario": "scenario",
    "rtt_samples": "rtt",
    "rtt_summary": "rtt",
    "rtt_unfairness": "metrics",
    "run_batch": "batch.run",
    "run_sweep": "sim.sweep",
    "run_testbed": "testbed.testbed",
    "run_testbed_sweep": "testbed.sweep",
    "scenario_from_capture": "workload",
    "share_difference": "metrics",
    "simulate": "sim.simulation",
    "standings": "aqm_league",
    "summarise": "summary",
    "sweep": "scenario",
    "synth_mawi": "synth",
    "throughput": "metrics",
    "write_pcap": "capture.writer",
}
_MODULES = (
    "aqm", "capture", "cca", "errors", "explore", "identify", "live", "metrics", "plot", "report", "schema",
    "separation",
)  # fmt: skip

__all__ = list(_WHERE) + list(_MODULES)

if TYPE_CHECKING:
    from . import aqm as aqm
    from . import cca as cca
    from . import errors as errors
    from . import identify as identify
    from . import live as live
    from . import metrics as metrics
    from . import plot as plot
    from . import schema as schema
    from .algorithm import AlgorithmError as AlgorithmError
    from .aqm_league import league as league
    from .aqm_league import standings as standings
    from .batch.run import BatchResult as BatchResult
    from .batch.run import run_batch as run_batch
    from .batch.settings import BatchSettings as BatchSettings
    from .capture.filtering import filter_capture as filter_capture
    from .capture.mawi import fetch_mawi as fetch_mawi
    from .capture.mawi import find_trace as find_trace
    from .capture.model import Capture as Capture
    from .capture.reader import iter_capture as iter_capture
    from .capture.reader import read_capture as read_capture
    from .capture.selection import Selection as Selection
    from .capture.writer import PcapWriter as PcapWriter
    from .capture.writer import write_pcap as write_pcap
    from .flows import FlowStatistics as FlowStatistics
    from .flows import flow_table as flow_table
    from .metrics import cdf as cdf
    from .metrics import flow_completion_times as flow_completion_times
    from .metrics import goodput as goodput
    from .metrics import jain_index as jain_index
    from .metrics import jain_over_time as jain_over_time
    from .metrics import link_utilisation as link_utilisation
    from .metrics import queue_delay as queue_delay
    from .metrics import queue_loss as queue_loss
    from .metrics import rtt_unfairness as rtt_unfairness
    from .metrics import share_difference as share_difference
    from .metrics import throughput as throughput
    from .papers import paper_numbers as paper_numbers
    from .rtt import DataPlaneTables as DataPlaneTables
    from .rtt import RttPairing as RttPairing
    from .rtt import rtt_samples as rtt_samples
    from .rtt import rtt_summary as rtt_summary
    from .run import Run as Run
    from .run import load_run as load_run
    from .scenario import Bottleneck as Bottleneck
    from .scenario import Flow as Flow
    from .scenario import Queue as Queue
    from .scenario import Scenario as Scenario
    from .scenario import read_scenario as read_scenario
    from .scenario import sweep as sweep
    from .separation.jenks import jenks_classes as jenks_classes
    from .sim.simulation import Simulation as Simulation
    from .sim.simulation import simulate as simulate
    from .sim.sweep import run_sweep as run_sweep
    from .sketch import CountMinSketch as CountMinSketch
    from .sketch import LongFlows as LongFlows
    from .sketch import long_flows as long_flows
    from .slots import SlotTable as SlotTable
    from .slots import compute_slots as compute_slots
    from .summary import summarise as summarise
    from .synth import synth_mawi as synth_mawi
    from .tap_comparison import compare_taps as compare_taps
    from .testbed.sweep import run_testbed_sweep as run_testbed_sweep
    from .testbed.testbed import run_testbed as run_testbed
    from .workload import scenario_from_capture as scenario_from_capture


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

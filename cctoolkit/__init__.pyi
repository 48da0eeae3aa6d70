"""The public names, and the module each lives in: read by type checkers, and at run time by ``__init__.py``."""

__version__: str

from . import (
    aqm as aqm,
    capture as capture,
    cca as cca,
    errors as errors,
    identify as identify,
    plot as plot,
    report as report,
    schema as schema,
    separation as separation,
)
from ._support.algorithm.base import AlgorithmError as AlgorithmError
from .analysis import metrics as metrics
from .analysis.flows import (
    FlowStatistics as FlowStatistics,
    flow_table as flow_table,
    retransmitted_share as retransmitted_share,
    segment_kinds as segment_kinds,
)
from .analysis.limits import flow_limits as flow_limits
from .analysis.metrics import (
    cdf as cdf,
    flow_completion_times as flow_completion_times,
    goodput as goodput,
    jain_index as jain_index,
    jain_over_time as jain_over_time,
    link_utilisation as link_utilisation,
    queue_delay as queue_delay,
    queue_loss as queue_loss,
    rtt_unfairness as rtt_unfairness,
    share_difference as share_difference,
    throughput as throughput,
)
from .analysis.rtt import (
    DataPlaneTables as DataPlaneTables,
    RttPairing as RttPairing,
    rtt_samples as rtt_samples,
    rtt_summary as rtt_summary,
)
from .analysis.sender_view import seen_by_sender as seen_by_sender
from .analysis.sketch import (
    CountMinSketch as CountMinSketch,
    LongFlows as LongFlows,
    long_flows as long_flows,
)
from .analysis.slots import SlotTable as SlotTable, compute_slots as compute_slots
from .analysis.tap_comparison import compare_taps as compare_taps
from .batch.run import BatchResult as BatchResult, run_batch as run_batch
from .batch.settings import BatchSettings as BatchSettings
from .capture.filtering import filter_capture as filter_capture
from .capture.mawi import fetch_mawi as fetch_mawi, find_trace as find_trace, real_traces as real_traces
from .capture.model import Capture as Capture
from .capture.reader import iter_capture as iter_capture, read_capture as read_capture
from .capture.selection import Selection as Selection
from .capture.synth.mawi import synth_mawi as synth_mawi
from .capture.writer import PcapWriter as PcapWriter, write_pcap as write_pcap
from .experiments import lessons as lessons
from .experiments.league import league as league, standings as standings
from .experiments.papers import paper_numbers as paper_numbers
from .identify import live as live
from .report import explore as explore
from .report.summary import summarise as summarise
from .scenario import (
    Bottleneck as Bottleneck,
    Flow as Flow,
    Queue as Queue,
    Scenario as Scenario,
    read_link_trace as read_link_trace,
    read_scenario as read_scenario,
    sweep as sweep,
)
from .scenario.example import example as example
from .scenario.run import Run as Run, load_run as load_run
from .separation.jenks import jenks_classes as jenks_classes
from .separation.workload import scenario_from_capture as scenario_from_capture
from .sim.simulation import Simulation as Simulation, simulate as simulate
from .sim.sweep import run_sweep as run_sweep
from .testbed.sweep import run_testbed_sweep as run_testbed_sweep
from .testbed.testbed import run_testbed as run_testbed

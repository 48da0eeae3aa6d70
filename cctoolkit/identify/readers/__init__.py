"""Readers for other data: iperf3's JSON, tshark's field exports, tables of labels, names of files.

:func:`read_tshark_fields` returns a Capture; :func:`read_iperf3` returns time series and congestion controls;
:func:`read_labels` and :func:`labels_from_names` return tables of labels, which :func:`label_flows` assigns to a
capture's flows; :func:`settings_from_name` returns the settings of a run from the names of Nebby's and CCAnalyzer's
files.
"""

from .iperf3 import Iperf3, read_iperf3
from .labels import cca_name, label_flows, read_labels
from .names import labels_from_names, settings_from_name
from .tshark_fields import read_tshark_fields

__all__ = [
    "Iperf3",
    "cca_name",
    "label_flows",
    "labels_from_names",
    "read_iperf3",
    "read_labels",
    "read_tshark_fields",
    "settings_from_name",
]

from . import explore as explore, findings as findings, page as page, summary as summary
from .page import report as report, terminal_summary as terminal_summary

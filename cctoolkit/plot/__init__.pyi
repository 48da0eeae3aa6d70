from .cdfs import completion_cdf as completion_cdf, rtt_cdf as rtt_cdf
from .classes import rtt_classes as rtt_classes
from .delays import queue_delay as queue_delay, rtt as rtt
from .occupancy import cbiq as cbiq
from .rates import BIG_SHARE as BIG_SHARE, throughput as throughput
from .runs import goodput as goodput, queue as queue, window as window
from .sequence import bytes_in_flight as bytes_in_flight, time_sequence as time_sequence
from .source import Names as Names
from .stacking import stack as stack
from .thinning import thin as thin, thin_rows as thin_rows
from .trade_off import trade_off as trade_off

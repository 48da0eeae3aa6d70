from . import live as live
from .bundle import Model as Model, bundled_models as bundled_models, load as load
from .classifiers import (
    CCAClassifier as CCAClassifier,
    DeepcciClassifier as DeepcciClassifier,
    DragonflyClassifier as DragonflyClassifier,
    SummaryClassifier as SummaryClassifier,
)
from .classify import classify_flows as classify_flows
from .dataset import (
    Recording as Recording,
    SlotDataset as SlotDataset,
    build_dataset as build_dataset,
    record as record,
)
from .saving import save_models as save_models
from .settings import SETTINGS as SETTINGS
from .windows import (
    FEATURE_SETS as FEATURE_SETS,
    INPUTS as INPUTS,
    Windows as Windows,
    cut_windows as cut_windows,
)
